"""What differs between two deployments, bundles or locks: read, compared, told, gated; and size budgets.

May import inspect, bundle, lock. Reads lists and decisions, never the bytes of layers.
"""

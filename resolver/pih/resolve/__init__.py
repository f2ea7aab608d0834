"""From intent and catalog to decisions: solver, explanations, artifacts, lowering, budget, build graph.

`locking.lock` makes a lock, `unchanged.check` judges one. Nothing is imported here: a build asks for the second alone.
"""

"""What every bundle carries: contracts, plan, lock reader, microkernel.

Standard library only; imports nothing of the build-time program and no plugin.
"""

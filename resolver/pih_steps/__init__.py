"""What a build step runs: pure functions from declared inputs to one output.

Standard library, `pih_runtime` and the tool wheels that the lock names; nothing of `pih`.
The tree is itself a declared input of every step, run by the lock's own interpreter.
"""

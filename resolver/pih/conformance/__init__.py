"""The conformance suite: what a plugin says of itself, held against what it does.

`suite` is the host's half: it reads the manifest and judges what the plugin's own process reports. `probe` is that
process; it, and what it imports, needs the standard library and `pih_runtime` alone, so that a plugin is tried under
the interpreter that has its wheels.
"""

"""The version of the protocols in `contracts`; a plugin.toml names the one that its plugin is written to."""

ABI = 1

"""The build-time program: from a profile to its lock, from a lock to its bundle."""

VERSION = "0.1.0"

"""The shipped profile that tests look into, its lock, and a bundle's list of files over it."""

import hashlib
import json
from pathlib import Path

from pih import lock as locks

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "profiles" / "smollm2-cpu.toml"
LOCK = locks.read(locks.path_for(PROFILE))
TEXT = locks.path_for(PROFILE).read_bytes()
LINE = {"path": "/pih/lock.json", "size": 1, "digest": "sha256:0", "component": "pih", "reason": "r", "layer": "app"}


def listing(lock=TEXT, **changes):
    """The bytes of a bundle.json that lists the lock alone."""
    digest = "sha256:" + hashlib.sha256(lock).hexdigest()
    return json.dumps({"schema": 1, "name": "toy", "lock": digest, "files": [LINE], **changes}).encode()

"""Where a bundle comes from: SLSA provenance v1 (https://slsa.dev/spec/v1.0/provenance).

Only what the bundle itself proves: the profile and lock that it was built for, and every artifact of the lock by its
digest. No time, host or invocation, for no build records one: the same bytes come out wherever they are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pih.lock import Artifact, Lock

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://pih.invalid/build/v1"
BUILDER = "https://pih.invalid/builder"


def predicate(lock: Lock, lock_digest: str, sources: Mapping[str, str]) -> dict[str, Any]:
    """The predicate. lock_digest: 'sha256:…' of /pih/lock.json. sources: path in the source tree → its digest.

    The profile's digest is of its intent in canonical form, as locks have it, and not of a file: so its name.
    """
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "profile": {
                    "name": lock.profile.name,
                    "file": lock.profile.file,
                    "digest": {"pihProfile": lock.profile.sha256},
                },
                "lock": {"name": "/pih/lock.json", "digest": _digest(lock_digest)},
            },
            "resolvedDependencies": [
                *(_artifact(item) for item in lock.artifacts),
                *({"name": tree, "digest": _digest(digest)} for tree, digest in sorted(sources.items())),
            ],
        },
        "runDetails": {"builder": {"id": BUILDER, "version": {"pih": lock.pih}}},
    }


def _artifact(item: Artifact) -> dict[str, Any]:
    found = {"name": item.name, "digest": {"sha256": item.sha256}}
    return found | {"uri": item.purls[0]} if item.purls else found


def _digest(text: str) -> dict[str, str]:
    algorithm, _, value = text.partition(":")
    return {algorithm: value}

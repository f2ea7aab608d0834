"""The licence of each component of a bundle: an SPDX expression, or NOASSERTION. The lock alone says it.

Components are called as in /pih/bundle.json: packages and wheels by name, plugins by id, and `pih` (the runtime, from
the source tree), `model` (tokenizer, chat template), `weights`.
"""

from __future__ import annotations

from typing import Any

from pih.lock import Lock
from pih.spdx import NOASSERTION, both

OWN = "Apache-2.0"  # of PIH itself, as pyproject.toml says; what lies in the source tree is under it
_OF_TEXT = ("tokenizer", "chat_template", "generation")


def of_components(lock: Lock) -> dict[str, str]:
    """Every component that a bundle of this lock can have."""
    found = {artifact.name: artifact.licence for artifact in lock.artifacts}
    found |= {plugin.id: plugin.licence for plugin in lock.plugins}
    weights = _of_file(lock.model.get("weights"), found)
    text = [_of_file(lock.model[role], found) for role in _OF_TEXT if role in lock.model]
    # a role that the profile does not name comes out of the weights' file
    whole = text if "tokenizer" in lock.model else [weights, *text]
    return found | {"pih": OWN, "weights": weights, "model": both(whole)}


def _of_file(file: Any, artifacts: dict[str, str]) -> str:
    """Of a file of the model: its artifact's, or the source tree's."""
    if not isinstance(file, dict):
        return NOASSERTION
    return artifacts.get(str(file["artifact"]), NOASSERTION) if "artifact" in file else OWN

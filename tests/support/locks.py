"""Editing a lock as `pih lock` would write it: with its digests made again."""

import json

from pih_runtime.canonical import sealed


def sealed_text(text: str) -> str:
    """The text of a lock, after an edit, as a lock that was written so."""
    return json.dumps(sealed(json.loads(text)), indent=2, ensure_ascii=False) + "\n"

"""Record facts of every variant beside the first, and what is said: `python -m tests.integration.diff.record`.

For when facts get another shape; where only sentences change, `recorded.write_goldens()` is enough.
"""

import tempfile
from pathlib import Path

from pih.diff import facts
from pih.inspect.opened import opened
from tests.integration.diff import variants
from tests.unit.diff import recorded

# pairs of the repository's own profiles
SHIPPED = {"ranks": ("qwen3-4090d", "qwen3-4090d-x2"), "device": ("qwen3-cpu", "qwen3-4090d")}


def main():
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: _facts(Path(folder), name) for name in variants.EDITS}
    first = sides.pop("first")
    for name, side in sides.items():
        (recorded.HERE / "facts" / f"{name}.json").write_text(recorded.text_of(first, side))
    for name, profiles in SHIPPED.items():
        two = (_of(variants.PROFILES / f"{profile}.toml") for profile in profiles)
        (recorded.HERE / "facts" / f"{name}.json").write_text(recorded.text_of(*two))
    recorded.write_goldens()


def _facts(folder, name):
    return _of(variants.write(folder, name))


def _of(profile):
    return facts.of_bundle(opened(variants.build(profile)), profile.stem)


if __name__ == "__main__":
    main()

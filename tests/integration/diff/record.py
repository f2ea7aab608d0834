"""Record facts of every variant beside the first, and what is said: `python -m tests.integration.diff.record`.

For when sentences change on purpose: read the difference of the goldens as a reviewer would.
"""

import tempfile
from pathlib import Path

from pih.diff import facts
from pih.inspect.opened import opened
from tests.integration.diff import variants
from tests.unit.diff import recorded


def main():
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: _facts(Path(folder), name) for name in variants.EDITS}
    first = sides.pop("first")
    for name, side in sides.items():
        (recorded.HERE / "facts" / f"{name}.json").write_text(recorded.text_of(first, side))
        for form, said in recorded.FORMS.items():
            (recorded.HERE / "golden" / f"{name}.{form}").write_text(said(*recorded.pair(name)))


def _facts(folder, name):
    layout = variants.build(variants.write(folder, name))
    return facts.of_bundle(opened(layout), name)


if __name__ == "__main__":
    main()

"""Facts of real small bundles as they were recorded, and how: `python -m tests.integration.diff.record`."""

import itertools
import json
from pathlib import Path

import attrs

from pih.diff import markdown, report
from pih.diff.compare import compare
from pih.diff.facts import Facts, File
from pih.structure import structure, unstructure

HERE = Path(__file__).parent
NAMES = ("base", "bf16", "device", "isa", "ranks", "separate", "small")


def pair(name):
    """The two sides, old and new."""
    data = json.loads((HERE / "facts" / f"{name}.json").read_text())
    return tuple(structure(data[side], Facts) for side in ("old", "new"))


def text(old, new):
    """What the command prints, without its columns."""
    rows = report.lines(compare(old, new))
    return "".join("  ".join(row).rstrip() + "\n" for row in rows)


FORMS = {"txt": text, "md": lambda old, new: markdown.rendered(compare(old, new), ())}


def write_goldens():
    """What is said now, of the facts as they are: read the difference as a reviewer would."""
    for name, form in itertools.product(NAMES, FORMS):
        (HERE / "golden" / f"{name}.{form}").write_text(FORMS[form](*pair(name)))


def golden(name, form):
    return (HERE / "golden" / f"{name}.{form}").read_text()


def text_of(old, new):
    """The file that `pair` reads: files that both sides have alike are one for each component and layer."""
    both = {row for row in old.image.files if row in set(new.image.files)}
    sides = {"old": condensed(old, both, "first"), "new": condensed(new, both, "second")}
    return json.dumps({name: unstructure(side) for name, side in sides.items()}, indent=1, ensure_ascii=False) + "\n"


def condensed(side, both, where):
    sums = {}
    for row in side.image.files:
        if row in both:
            key = (row.component, row.layer)
            sums[key] = sums.get(key, 0) + row.size
    rest = [File(f"/{layer}/{component}/…", size, "", component, layer) for (component, layer), size in sums.items()]
    own = [row for row in side.image.files if row not in both]
    image = attrs.evolve(side.image, files=tuple(rest + own))
    return attrs.evolve(side, where=where, image=image)

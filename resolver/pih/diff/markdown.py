"""A difference as the comment of a pull request: headline, sentences, a table by component, the rest folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pih.diff import report
from pih.diff.difference import Difference, ImageChange
from pih.diff.gates import Tripped
from pih.diff.words import headline, sentences

_FILES = 200  # forges cut or refuse comments of more than some 65,000 characters
# What forges read as markup, a mention or a reference, as the entities that they show it by.
_ENTITIES = {ord(mark): f"&#{ord(mark)};" for mark in "&<>|`*_[]~\\@#$"}
_NUMBERS = frozenset({"before", "after", "change"})


def rendered(found: Difference, tripped: Iterable[Tripped]) -> str:
    """GitHub-flavoured Markdown, which GitLab shows alike."""
    return "\n".join(_lines(found, tuple(tripped))) + "\n"


def _lines(found: Difference, tripped: tuple[Tripped, ...]) -> Iterator[str]:
    yield f"### {_text(headline(found))}"
    for gate in tripped:
        yield f"\n> **Gate tripped:** `{gate.gate}`: {_text(gate.why)}"
    said = sentences(found)
    if said:
        yield ""
        yield from (f"- {_text(sentence)}" for sentence in said)
    if found.image is None or found.same:
        return
    yield ""
    yield from _table(report.components(found.image))
    yield from _folded("Layers", report.layers(found.image))
    if found.image.files:
        yield from _folded(_files_title(found.image), report.files(found.image, _FILES))


def _files_title(image: ImageChange) -> str:
    count = len(image.files)
    return f"{count} file{'s' if count > 1 else ''}"


def _folded(title: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"\n<details><summary>{title}</summary>\n"
    yield from _table(rows)
    yield "\n</details>"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---:' if name in _NUMBERS else '---' for name in head)}|"
    for row in body:
        yield f"| {' | '.join(map(_text, row))} |"


def _text(text: str) -> str:
    """Text of a bundle is text here too: no markup, no mention of a user, no cell of its own."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return plain.translate(_ENTITIES)

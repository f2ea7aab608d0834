"""A bundle as one page of HTML that needs nothing else: no network, no second file.

What a bundle says is untrusted. It enters the page as JSON in which no markup can begin, and the page's policy lets the
browser run the page's own script, known by its digest, and load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from pih.inspect import causes, overview
from pih.inspect.causes import Graph
from pih.inspect.opened import Opened

_PARTS = Path(__file__).parent / "page"
# In the order of what needs what.
_DATA = ("words", "model", "chains", "state", "colours")
_VIEWS = ("squarify", "overview", "treemap", "why", "graph", "tables", "main")


def page(held: Opened) -> str:
    """The whole page, as ASCII apart from what its own parts hold."""
    style = _part("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_part(f"{name}.js") for name in _DATA + _VIEWS) + "})();\n"
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    )
    return Template(_part("template.html")).substitute(
        policy=policy,
        title=html.escape(f"{held.contents.name}: PIH bundle").encode("ascii", "backslashreplace").decode(),
        style=style,
        script=script,
        data=_inert(_data(held)),
    )


def _part(name: str) -> str:
    return (_PARTS / name).read_text("utf-8")


def _digest(text: str) -> str:
    """As Content-Security-Policy writes it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _inert(data: dict[str, Any]) -> str:
    """JSON that ends no script element and begins no comment: a browser looks for both before it reads JSON."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _data(held: Opened) -> dict[str, Any]:
    """What `--json` and the overview say, and the graph of reasons that `pih why` follows."""
    graph = causes.of_contents(causes.of_lock(held.lock), held.contents)
    return overview.as_json(held) | {"sealed": overview.seal(held), "graph": list(_things(graph))}


def _things(graph: Graph) -> Iterator[dict[str, Any]]:
    """why: [words, the thing that they follow from], for each cause."""
    for key, thing in graph.things.items():
        yield {
            "kind": thing.kind,
            "name": thing.name,
            "about": thing.about,
            "digest": thing.digest,
            "component": thing.component,
            "why": [[cause.words, cause.parent] for cause in graph.causes.get(key, ())],
        }

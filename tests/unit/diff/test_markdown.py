"""Markdown: what a bundle says is text, whatever it says."""

import attrs
import pytest
from markdown_it import MarkdownIt

from pih.diff import markdown
from pih.diff.compare import compare
from pih.diff.difference import Component
from pih.diff.facts import File
from pih.diff.gates import Tripped
from tests.unit.diff.recorded import NAMES, pair

READ = MarkdownIt("commonmark", {"html": True}).enable("table")
HOSTILE = [
    "<script>alert(1)</script>", "</details>", "a|b|c", "[x](http://example.com)", "`x`", "**b**", "@everyone", "# x",
    "line\nbreak", "\x1b[31m", "![i](http://e/x.png)", "https\u202e", "<!--", "$x$", "~~x~~", "\\",
]  # fmt: skip


def tokens(text):
    return READ.parse(text)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_headline_sentences_and_tables(name):
    found = compare(*pair(name))
    read = tokens(markdown.rendered(found, ()))
    kinds = [token.type for token in read]
    assert kinds[0] == "heading_open"
    assert kinds.count("table_open") == 3
    rows = kinds.count("tr_open")
    image = found.image
    assert rows == 3 + len(image.components) + 1 + 2 * len(image.layers) + 1 + len(image.files)
    html = [token.content.strip() for token in read if token.type == "html_block"]
    assert [text.count("<details>") - text.count("</details>") for text in html] == [1, -1] * (len(html) // 2)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_bundle_is_markup(text):
    old, new = pair("isa")
    files = (*new.image.files, File(f"/{text}", 9, "sha256:0", text, "app"))
    hostile = attrs.evolve(new, name=text, fallbacks=(text,), image=attrs.evolve(new.image, files=files))
    found = compare(attrs.evolve(old, name=text), hostile)
    component = Component(text, found.image.components[0].version, found.image.components[0].size)
    found = attrs.evolve(found, image=attrs.evolve(found.image, components=(component,)))
    read = tokens(markdown.rendered(found, [Tripped("--fail-on licence", text)]))
    shown = ["".join(child.content for child in token.children) for token in read if token.type == "inline"]
    plain = "".join(char if char.isprintable() else "\ufffd" for char in text)
    assert shown[0].startswith(f"{plain}: ")
    assert f"New fallback: {plain}." in shown
    inside = [child.type for token in read for child in token.children or ()]
    assert set(inside) <= {"text", "strong_open", "strong_close", "code_inline", "softbreak"}
    assert inside.count("code_inline") == inside.count("strong_open") == 1  # of the gate alone
    blocks = [token.content.strip() for token in read if token.type == "html_block"]
    assert all(block.startswith(("<details><summary>", "</details>")) and "script" not in block for block in blocks)
    assert [token.type for token in read].count("heading_open") == 1
    assert "@everyone" not in markdown.rendered(found, ())


def test_a_comment_stays_within_what_forges_take():
    old, new = pair("isa")
    many = tuple(File(f"/usr/lib/{'x' * 100}/{number}", 1, "sha256:0", "foo", "app") for number in range(5000))
    found = compare(old, attrs.evolve(new, image=attrs.evolve(new.image, files=new.image.files + many)))
    text = markdown.rendered(found, ())
    assert len(text) < 65_000
    assert "and 4802 more files" in text

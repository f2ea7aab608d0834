"""A GGUF file's tokenizer as the tokenizer.json that the `tokenizers` library reads.

Byte-level BPE only. How text is cut before merging (`pre`) is not spelled out in the file but known by
name; an unknown name is refused, since a near miss would change what the model reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pih_runtime.errors import BuildError

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# name → what cuts the text; SmolLM's models were trained with every digit on its own.
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


def tokenizer_json(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content of tokenizer.json."""

    def fail(what: str, fix: str = "fetch the file again; if it stays so, the file is damaged") -> BuildError:
        return BuildError(what, where=where, fix=fix)

    if (kind := metadata.get("tokenizer.ggml.model")) != "gpt2":
        raise fail(
            f"the tokenizer is of the kind {kind!r}", "give tokenizer in the profile; only byte-level BPE is converted"
        )
    if (pre := str(metadata.get("tokenizer.ggml.pre"))) not in _PRE_TOKENIZERS:
        raise fail(
            f"the pre-tokenizer {pre!r} is not known",
            f"known are {', '.join(_PRE_TOKENIZERS)}; or give tokenizer in the profile",
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens", where)
    merges = _strings(metadata, "tokenizer.ggml.merges", where)
    kinds = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise fail("tokenizer.ggml.token_type does not have one entry for each token")
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise fail("tokenizer.ggml.tokens holds a token twice")
    pairs = [merge.split(" ") for merge in merges]
    for pair in pairs:
        if len(pair) != 2 or not all(part in vocab for part in (*pair, "".join(pair))):
            raise fail(f"the merge {' '.join(pair)!r} is not of two tokens into a third")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(index, tokens[index], kind) for index, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": pairs,
        },
    }


def token_id(metadata: Mapping[str, Any], key: str, where: str) -> int | None:
    """The id that `tokenizer.ggml.<key>` names; None where the file does not say."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < len(metadata["tokenizer.ggml.tokens"]):
        raise BuildError(
            f"tokenizer.ggml.{key} is {value!r}, not the id of a token", where=where, fix="fetch the file again"
        )
    return value


def _added(index: int, token: str, kind: int) -> dict[str, Any]:
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind == _CONTROL,
    }


def _strings(metadata: Mapping[str, Any], key: str, where: str) -> Sequence[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise BuildError(f"metadata {key} is no list of strings", where=where, fix="fetch the file again")
    return value

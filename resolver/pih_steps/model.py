"""Step `model`: what turns text into ids and back: tokenizer.json, chat_template.jinja, text.json.

params: files by role: tokenizer (a tokenizer.json), chat_template, generation (generation_config.json), config. A role
that is not there is taken from the weights' GGUF file. text.json:
    template_variables  {"bos_token": TEXT, ...}: what chat templates call by these names
    bos_id, add_bos     the id that begins a text, or null, and whether every plain text begins with it
    stop_ids            ids that end a generation
    defaults            the model's own temperature, top_k, top_p, min_p; temperature 0 where it does not sample
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pih_runtime.errors import BuildError
from pih_runtime.numbers import whole
from pih_steps.lower import files
from pih_steps.lower.files import Paths, Reference
from pih_steps.lower.sources import read_gguf, read_json
from pih_steps.lower.tokenizer import token_id, tokenizer_json
from pih_steps.spec import Spec, param

# of each setting of a generation config, whether it is a whole number, and the range that it can have
_SAMPLING = {
    "temperature": (False, 0, 100),
    "top_k": (True, -1, 1 << 31),
    "top_p": (False, 0, 1),
    "min_p": (False, 0, 1),
}
# settings of a generation config that change a model's answers and that no sampler here takes, where they do nothing
_IDLE: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("num_beams", "num_beam_groups", "repetition_penalty", "encoder_repetition_penalty", "typical_p"), (1,)
    ),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "diversity_penalty", "penalty_alpha"), (0,)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"), (0,)),
    **dict.fromkeys(("stop_strings", "bad_words_ids", "force_words_ids", "constraints"), ([],)),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids"), ([],)),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"), ()),
    **dict.fromkeys(("sequence_bias", "watermarking_config"), ({},)),
    "guidance_scale": (1,),
    **dict.fromkeys(("dola_layers", "top_h"), ()),
}
_SPECIAL = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "pad_token_id"}


@dataclass(frozen=True, slots=True)
class Text:
    """The three files; what is not known yet is empty."""

    tokenizer: bytes = b""
    chat_template: bytes = b""
    template_variables: Mapping[str, str] | None = None
    bos_id: int | None = None
    stop_ids: tuple[int, ...] = ()
    defaults: Mapping[str, float] | None = None


def run(spec: Spec) -> None:
    """Write the folder of three files."""
    _write(text_of(param(spec, "files"), spec.artifacts, spec.trees), spec)


def text_of(roles: Mapping[str, Reference], artifacts: Paths, trees: Paths) -> Text:
    """What is written; raises BuildError whose `where` is the file's that is wrong, as `files.described` has it."""
    text = Text()
    if "weights" in roles:
        text = _of_gguf(roles["weights"], artifacts, trees)
    if "tokenizer" in roles:
        text = replace(text, tokenizer=_checked_tokenizer(roles["tokenizer"], artifacts, trees))
    if "chat_template" in roles:
        text = replace(text, chat_template=_checked_template(roles["chat_template"], artifacts, trees))
    tokenizer = json.loads(text.tokenizer or b"{}")
    for role in ("config", "generation"):
        if role in roles:
            config = read_json(roles[role], artifacts, trees)
            text = _with_generation(text, tokenizer, config, files.described(roles[role]))
    if not text.tokenizer or not text.stop_ids:
        missing = "stop ids" if text.tokenizer else "tokenizer"
        raise BuildError(
            f"the model has no {missing}", where="model", fix="give tokenizer and generation in the profile's [model]"
        )
    return text


def _write(text: Text, spec: Spec) -> None:
    about = {
        "schema": 1,
        "template_variables": text.template_variables or {},
        "bos_id": text.bos_id,
        "add_bos": text.bos_id is not None,
        "stop_ids": list(text.stop_ids),
        "defaults": text.defaults or {},
    }
    spec.output.mkdir(parents=True, exist_ok=True)
    (spec.output / "tokenizer.json").write_bytes(text.tokenizer)
    (spec.output / "chat_template.jinja").write_bytes(text.chat_template)
    (spec.output / "text.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _of_gguf(weights: Reference, artifacts: Paths, trees: Paths) -> Text:
    where = files.described(weights)
    metadata = read_gguf(weights, artifacts, trees).metadata
    content = tokenizer_json(metadata, where)
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: token_id(metadata, key, where) for name, key in _SPECIAL.items() if name != "pad_token"}
    ids["pad_token"] = token_id(metadata, "padding_token_id", where)
    ids["unk_token"] = token_id(metadata, "unknown_token_id", where)
    eos = ids["eos_token"]
    return Text(
        tokenizer=json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(),
        chat_template=str(metadata.get("tokenizer.chat_template", "")).encode(),
        template_variables={name: tokens[index] for name, index in ids.items() if index is not None},
        bos_id=ids["bos_token"] if metadata.get("tokenizer.ggml.add_bos_token") is True else None,
        stop_ids=() if eos is None else (eos,),
        defaults={"temperature": 0.0},  # the file says nothing of sampling, so nothing is drawn
    )


def _checked_tokenizer(reference: Reference, artifacts: Paths, trees: Paths) -> bytes:
    """The file without the white space that lays it out: a quarter less to ship and to read at each start."""
    data = files.read(reference, artifacts, trees)
    try:
        content = json.loads(data.decode(), parse_int=whole)
        kind = content["model"]["type"]
        _ids(content, _added(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BuildError(
            f"not a tokenizer.json: {problem!r}",
            where=files.described(reference),
            fix="name a file of the tokenizers library",
        ) from problem
    if kind not in ("BPE", "Unigram", "WordPiece", "WordLevel"):
        raise BuildError(
            f"a tokenizer of the unknown kind {kind!r}", where=files.described(reference), fix="name another"
        )
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _checked_template(reference: Reference, artifacts: Paths, trees: Paths) -> bytes:
    data = files.read(reference, artifacts, trees)
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        raise BuildError(
            f"not UTF-8: {problem}", where=files.described(reference), fix="name a chat template (Jinja)"
        ) from problem
    return data


def _with_generation(text: Text, tokenizer: Mapping[str, Any], config: Mapping[str, Any], where: str) -> Text:
    """Ids and sampling that a config.json or generation_config.json says; what it does not say stays."""
    for key, idle in _IDLE.items():
        value = config.get(key)
        if value is not None and value not in idle:
            raise BuildError(
                f"{key} is {value!r}, which changes the model's answers and is not done here",
                where=where,
                fix="name a copy of the file without it, if answers without it will do",
            )
    content = _added(tokenizer)
    vocabulary = _ids(tokenizer, content)
    variables = dict(text.template_variables or {})
    stop_ids = text.stop_ids
    for name, key in _SPECIAL.items():
        value = config.get(key)
        ids = value if isinstance(value, list) else [value] if value is not None else []
        if not all(type(item) is int and item >= 0 for item in ids):
            raise BuildError(
                f"{key} is {value!r}, not an id or a list of ids",
                where=where,
                fix="correct it, or take the file of the model's publisher",
            )
        if ids and vocabulary and max(ids) >= vocabulary:
            raise BuildError(
                f"{key} is {value!r}, and the tokenizer has {vocabulary} ids",
                where=where,
                fix="take the tokenizer and the settings of one model",
            )
        if ids and ids[0] in content:
            variables[name] = content[ids[0]]
        if ids and name == "eos_token":
            stop_ids = tuple(ids)
    defaults = dict(text.defaults or {})
    defaults |= {key: _setting(key, config[key], where) for key in _SAMPLING if config.get(key) is not None}
    if config.get("do_sample") is False:
        defaults = {"temperature": 0.0}
    return replace(text, template_variables=variables, stop_ids=stop_ids, defaults=defaults)


def _added(tokenizer: Mapping[str, Any]) -> dict[int, str]:
    """The added tokens of a tokenizer.json, by id."""
    return {item["id"]: item["content"] for item in tokenizer.get("added_tokens", ())}


def _ids(tokenizer: Mapping[str, Any], added: Mapping[int, str]) -> int:
    """One more than the highest id of a tokenizer.json; 0 where it has no vocabulary."""
    vocab = tokenizer.get("model", {}).get("vocab") or ()
    known = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    return max((*known, *added), default=-1) + 1 if vocab else 0


def _setting(key: str, value: Any, where: str) -> float:
    whole, low, high = _SAMPLING[key]
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise BuildError(
            f"{key} is {value!r}, not {'a whole number' if whole else 'a number'} from {low} to {high}",
            where=where,
            fix="correct it, or take the file of the model's publisher",
        )
    setting: float = value
    return setting

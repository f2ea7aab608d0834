"""What model plugins ask of a config: checked figures, and the frequencies of rotary embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Context, Decimal
from struct import pack, unpack
from typing import Any

from pih_runtime.errors import BuildError, ResolutionError
from pih_runtime.plan import Limits

_DIGITS = Context(prec=40)
# Keys of Hugging Face's configs that no number of a decoder at inference comes from: about training, files, the library
# that wrote them, its classes and outputs, and ids and sampling, which the `model` step reads.
_NEUTRAL = frozenset((
    "_attn_implementation", "_flash_attn_2_enabled", "_name_or_path", "architectures", "attention_dropout",
    "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward", "decoder_start_token_id", "dtype",
    "embd_pdrop", "eos_token_id", "finetuning_task", "hidden_dropout", "id2label", "initializer_range",
    "is_llama_config", "label2id", "max_length", "max_window_layers", "min_length", "name_or_path",
    "output_attentions", "output_hidden_states", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
    "resid_pdrop", "return_dict", "sep_token_id", "task_specific_params", "temperature", "tokenizer_class", "top_k",
    "top_p", "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "unk_token_id",
    "unsloth_fixed", "unsloth_version", "use_cache",
))  # fmt: skip


_PLAIN_ROPE = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


class Looked(Mapping[str, Any]):
    """A config that remembers which of its keys were looked at."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._seen.add(key)
        return self._config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def check(self) -> None:
        """Raises BuildError for a key that says something, and that nobody looked at: it may change every answer."""
        for key, value in self._config.items():
            if value and key not in self._seen and key not in _NEUTRAL:
                raise BuildError(
                    f"config key {key} is {value!r:.100}, of which the model plugin knows nothing",
                    where="config",
                    fix="take a model plugin that honours it: without it the answers would be wrong",
                )


_LARGEST = 1 << 24


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer of the config."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value <= _LARGEST:
        raise _bad(key, value, f"a whole number from 1 to {_LARGEST}")
    return value


def real(config: Mapping[str, Any], key: str) -> float:
    """A positive number of the config."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise _bad(key, value, "a positive number")
    return float(value)


def expect(config: Mapping[str, Any], key: str, known: tuple[Any, ...]) -> Any:
    """A key that may be absent (then the first) or one of the values that the model can honour."""
    value = config.get(key, known[0])
    if value not in known:
        raise _bad(key, value, " or ".join(repr(item) for item in known))
    return value


def attention_heads(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Query heads, key/value heads, head_dim: each key/value head serves the same number of query heads."""
    heads = whole(config, "num_attention_heads")
    kv_heads = whole(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise _bad("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads, {heads}")
    head_dim = whole(config, "head_dim", whole(config, "hidden_size") // heads)
    if head_dim % 2 or head_dim > 4096:
        raise _bad("head_dim", head_dim, "an even number up to 4096")
    return heads, kv_heads, head_dim


def check_context(config: Mapping[str, Any], limits: Limits) -> None:
    """The deployment's context must lie within the positions that the model was trained for."""
    positions = whole(config, "max_position_embeddings")
    if limits.context > positions:
        raise ResolutionError(
            f"a context of {limits.context} is more than the model's {positions} positions",
            where="limits.context",
            fix=f"set it to at most {positions}",
        )


def rope_theta(config: Mapping[str, Any]) -> float:
    """The base of plain rotary embeddings; another kind, or one of a part of each head, would change every answer."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if (
        not isinstance(parameters, Mapping)
        or parameters.get("rope_type", parameters.get("type", "default")) != "default"
        or any(value for key, value in parameters.items() if key not in _PLAIN_ROPE)
    ):
        raise _bad("rope_scaling", parameters, "null")
    for part in (config, parameters):
        expect(part, "partial_rotary_factor", (1.0,))
    theta = config.get("rope_theta")
    return real({"rope_theta": theta, **parameters}, "rope_theta")


def check_full_attention(config: Mapping[str, Any]) -> None:
    """Every layer must look at all positions before it."""
    layers = config.get("layer_types") or ()
    if not isinstance(layers, (list, tuple)) or any(kind != "full_attention" for kind in layers):
        raise _bad("layer_types", layers, "'full_attention' for each")
    if "use_sliding_window" in config:
        expect(config, "use_sliding_window", (False,))
        config.get("sliding_window")  # what says nothing then


def inv_freq(theta: float, head_dim: int) -> tuple[float, ...]:
    """Theta ** (-2i / head_dim) for each pair, rounded where float32 arithmetic rounds: after the power, after 1/x.

    Decimal, since powers of the C library differ by processor in their last bit.
    """
    powers = (_DIGITS.power(Decimal(theta), Decimal(2 * i) / Decimal(head_dim)) for i in range(head_dim // 2))
    return tuple(_float32(1.0 / _float32(float(power))) for power in powers)


def _float32(value: float) -> float:
    return float(unpack("<f", pack("<f", value))[0])


def _bad(key: str, value: Any, expected: str) -> BuildError:
    return BuildError(
        f"config key {key} is {value!r}, expected {expected}",
        where="config",
        fix="take a checkpoint that this model plugin can run",
    )

"""What model plugins ask of a config: checked figures, and the frequencies of rotary embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from struct import pack, unpack
from typing import Any

from pih_runtime.errors import BuildError, ResolutionError
from pih_runtime.plan import Limits

_DIGITS = Context(prec=40)


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer of the config."""
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value <= 1 << 24:
        raise _bad(key, value, "a positive integer")
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
    """The base of plain rotary embeddings; a scaled kind is refused, it would change every answer."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if (
        not isinstance(parameters, Mapping)
        or parameters.get("rope_type", parameters.get("type", "default")) != "default"
    ):
        raise _bad("rope_scaling", parameters, "null")
    return real({**config, **parameters}, "rope_theta")


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

"""What of a profile must go together: rules that span keys, beyond what `profile_schema` says of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address

import attrs
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from pih.profile_schema import MODEL_KINDS, Intent, Model
from pih.sources import Source, parse_source
from pih.structure import RefusedError, choice_problem, show
from pih_runtime.ops import KERNEL_OPS

_SHAPE, _TEXT = ("tensors", "config"), ("tokenizer", "chat_template")


def check_together(intent: Intent) -> None:
    """Rules that span keys; raises RefusedError with a dotted key."""
    for rule in _RULES:
        rule(intent)


def _tokens_hold_a_batch(intent: Intent) -> None:
    limits = intent.limits
    if limits.tokens < limits.batch:
        raise RefusedError(
            "limits.tokens",
            f"{limits.tokens} tokens a step cannot hold one token of each of {limits.batch} sequences",
            f"raise limits.tokens to {limits.batch} or more, or lower limits.batch",
        )


def _a_way_to_ask(intent: Intent) -> None:
    if not intent.features.openai:
        raise RefusedError(
            "features.openai",
            "without a surface nobody can ask the worker anything",
            "set features.openai = true",
        )


def _model_files(intent: Intent) -> None:
    weights: Source = parse_source(intent.model.weights, MODEL_KINDS)
    brought: tuple[str, ...]
    needed: tuple[str, ...]
    if weights.member.endswith(".gguf") or weights.path.endswith(".gguf"):
        brought, needed = _SHAPE, ()
    elif weights.kind == "synthetic":
        brought, needed = _SHAPE, _TEXT
    else:
        brought, needed = (), ("config", *_TEXT)
    for key in brought:
        if getattr(intent.model, key):
            raise RefusedError(
                f"model.{key}",
                "these weights bring their own, and it would not be read",
                "remove it" + ("; what it says of stop ids goes into model.generation" if key == "config" else ""),
            )
    for key in needed:
        if not getattr(intent.model, key):
            raise RefusedError(
                f"model.{key}",
                "missing: only a GGUF file brings its own",
                f"add it, e.g. {key} = {show(attrs.fields_dict(Model)[key].metadata['example'])}",
            )


def _one_place(intent: Intent) -> None:
    for source in intent.plugins:
        if bool(source.path) == bool(source.package):
            raise RefusedError(
                "plugins",
                f"{'both' if source.path else 'neither'} of path and package",
                'give one, e.g. path = "../examples/npu"',
            )


def _devices_are_described(intent: Intent) -> None:
    device = intent.device
    if not device.count:
        given = [key for key in ("sm", "memory", "driver") if getattr(device, key)]
        if given:
            raise RefusedError(
                f"device.{given[0]}",
                "the deployment has no device that it could be of",
                f"set device.count = 1, or remove {given[0]}",
            )
    elif not device.memory:
        raise RefusedError(
            "device.memory", "missing: the budget must fit each device", 'add it, e.g. memory = "24 GiB"'
        )


def _spill_is_from_a_device(intent: Intent) -> None:
    if intent.limits.spill and not intent.device.count:
        raise RefusedError(
            "limits.spill",
            "the deployment has no device whose pages could spill",
            "remove spill: without devices the whole cache is in the host's memory",
        )


def _fallbacks_are_named(intent: Intent) -> None:
    kernels = intent.kernels
    if kernels.fallback == "allow" and not kernels.fallback_ops:
        raise RefusedError(
            "kernels.fallback",
            "allows nothing: no op is named",
            'name the ops that may be slow, e.g. fallback_ops = ["attention"], or set fallback = "forbid"',
        )
    if kernels.fallback == "forbid" and kernels.fallback_ops:
        raise RefusedError(
            "kernels.fallback_ops",
            "names ops while fallback forbids them all",
            'set kernels.fallback = "allow", or remove fallback_ops',
        )
    for op in kernels.fallback_ops:
        if op not in KERNEL_OPS:
            raise RefusedError("kernels.fallback_ops", *choice_problem(op, KERNEL_OPS))


def _pins_are_of_separate_weights(intent: Intent) -> None:
    if intent.weights.digest and intent.weights.delivery == "embed":
        raise RefusedError(
            "weights.digest",
            "the image holds its weights, and lists their digests itself",
            'remove it, or set weights.delivery = "separate"',
        )


def _the_host_is_an_address(intent: Intent) -> None:
    """Programs read part of an IPv4 address, such as 10.1, each in its own way."""
    host = intent.service.host
    if ":" in host or re.fullmatch(r"[0-9.]+", host):
        try:
            ip_address(host)
        except ValueError:
            fix = 'write it like "127.0.0.1" or "::1", without a port: that is service.port'
            raise RefusedError("service.host", f"{show(host)} is no address", fix) from None


def _preferences_are_versions(intent: Intent) -> None:
    for text in intent.selection.prefer:
        try:
            preference(text)
        except InvalidSpecifier:
            raise RefusedError(
                "selection.prefer", f"{show(text)} has no version specifier", 'write it like "memory/paged >=0.1,<0.2"'
            ) from None


def preference(text: str) -> tuple[str, SpecifierSet]:
    """(id, versions) of an entry of `selection.prefer`."""
    match = re.match(r"[a-z0-9/-]+", text)
    assert match is not None, text
    return match[0], SpecifierSet(text[match.end() :])


_RULES: tuple[Callable[[Intent], None], ...] = (
    _tokens_hold_a_batch,
    _a_way_to_ask,
    _model_files,
    _one_place,
    _devices_are_described,
    _spill_is_from_a_device,
    _fallbacks_are_named,
    _pins_are_of_separate_weights,
    _preferences_are_versions,
    _the_host_is_an_address,
)

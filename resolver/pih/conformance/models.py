"""Kind model: a decoder lowers tiny checkpoints to plans that the oracle runs; text goes to ids and back."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pih.conformance import bundles
from pih.conformance.findings import BrokenError, Named, SkippedError
from pih.conformance.formats import Rows, made
from pih.conformance.oracle import Oracle
from pih.conformance.subject import Subject, function, running, stop
from pih.reading import read_at_most
from pih_runtime.contracts import TokenStream, TooLongError
from pih_runtime.errors import PihError, described
from pih_runtime.plan import Limits, Plan
from pih_runtime.step import Sampling, Step
from pih_steps.lower import Checkpoint, Tensor, lower, parse_report, plan_sha256

EXAMPLE = "conformance.json"  # beside plugin.toml: {"config": …, "tensors": {name: [format, shape]}}
_MOST = 4 << 20  # bytes of it
_LIMITS = Limits(tokens=16, seqs=2, context=48)
_PAGE_SIZE = 16
_IDS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
# Of Llama's shape; a decoder of another one brings an example of its own.
_CONFIG: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 48, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
_BLOCK = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
    "input_layernorm": (64,), "post_attention_layernorm": (64,),
}  # fmt: skip
_HEAD_NORMS = {"self_attn.q_norm": (16,), "self_attn.k_norm": (16,)}
_WORDS = ("what is", "", " Füße, naïve — 東京 🙂\n\ttabs", "<unk>")


def checks(subject: Subject) -> Iterator[Named]:
    """Of its build half, and of its text."""
    if subject.build:
        yield "lowering: a tiny checkpoint becomes a plan that runs", partial(_runs, subject)
        yield "lowering: the same again is the same plan", partial(_same, subject)
        yield "lowering: a prompt in pieces is the prompt as a whole", partial(_pieces, subject)
        yield "lowering: earlier tokens and their order count", partial(_looks_back, subject)
        yield "lowering: each tensor counts", partial(_each_counts, subject)
        yield "lowering: what is missing or of another shape is refused", partial(_refuses, subject)
    if "model.text" in subject.provides:
        yield "text: to ids and back", partial(_round_trip, subject)
        yield "text: a stream gives whole characters", partial(_stream, subject)
        yield "text: the limit of ids", partial(_limit, subject)
        yield "text: the chat template", partial(_chat, subject)
        yield "text: a damaged tokenizer is refused", partial(_damaged, subject)


def _examples(subject: Subject) -> Iterator[Checkpoint]:
    """The plugin's own, or those of the suite."""
    own = subject.folder / EXAMPLE
    if own.is_file():
        data = json.loads(read_at_most(own, _MOST))
        tensors = {name: Tensor(form, tuple(shape)) for name, (form, shape) in data["tensors"].items()}
        yield _checkpoint(data["config"], tensors)
        return
    for extra in ({}, _HEAD_NORMS):
        tensors = {name: Tensor("f32", (48, 64)) for name in ("model.embed_tokens.weight", "lm_head.weight")}
        tensors["model.norm.weight"] = Tensor("f32", (64,))
        for layer in range(2):
            for name, shape in {**_BLOCK, **extra}.items():
                tensors[f"model.layers.{layer}.{name}.weight"] = Tensor("f32", shape)
        yield _checkpoint(_CONFIG, tensors)


def _checkpoint(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Checkpoint:
    def read(name: str, _start: int, _stop: int) -> bytes:
        raise BrokenError(f"lowering reads the bytes of {name}: a plan follows from shapes alone")

    return Checkpoint("conformance", config, tensors, read)


def _lowered(subject: Subject, checkpoint: Checkpoint) -> Plan:
    report = parse_report(subject.report, subject.isa, "kernels/cpu")
    return lower(checkpoint, function(subject.build), report, _LIMITS, "f32", _PAGE_SIZE).plan


def _tiny(subject: Subject) -> tuple[Checkpoint, Plan]:
    """The first example that the plugin takes."""
    why = ""
    for checkpoint in _examples(subject):
        try:
            return checkpoint, _lowered(subject, checkpoint)
        except PihError as problem:
            why = str(problem)
    if (subject.folder / EXAMPLE).is_file():
        raise BrokenError(f"its own {EXAMPLE} is refused: {why}")
    raise SkippedError(f"it takes no checkpoint of Llama's shape: put {EXAMPLE} beside plugin.toml ({why})")


def _weights(plan: Plan) -> dict[str, Rows]:
    """Made-up values for each tensor; constants as they are, norms about one."""
    found: dict[str, Rows] = {}
    for number, weight in enumerate(plan.weights):
        rows, columns = (1, *weight.shape)[-2:]
        drawn = made(rows, columns, weight.format, weight.layout, number + 1, edges=False)
        if weight.values:
            found[weight.name] = [list(weight.values)]
        elif drawn is None:
            raise SkippedError(f"weights of {weight.format} {weight.layout}, of which the suite has none")
        else:
            found[weight.name] = [[1 + v / 4 for v in row] for row in drawn.values] if rows == 1 else drawn.values
    return found


def _logits(plan: Plan, weights: Mapping[str, Rows], pieces: list[list[int]]) -> list[float]:
    """Of the last token of the last piece, one sequence, a piece a step."""
    oracle, start = Oracle(plan, weights), 0
    logits: Rows = []
    for piece in pieces:
        positions = range(start, start + len(piece))
        start += len(piece)
        pages = array("i", range(-(-_LIMITS.context // _PAGE_SIZE)))
        step = Step(
            array("i", piece), array("i", positions), array("i", [0, len(piece)]), pages, len(pages),
            array("i", positions), array("i", [len(piece) - 1]), array("i", [0]), (Sampling(),),
        )  # fmt: skip
        try:
            ids, logits = oracle.run(step)
        except Exception as problem:
            raise BrokenError(f"the oracle cannot run the plan: {described(problem)}") from problem
        if not 0 <= ids[0] < plan.vocab:
            raise BrokenError(f"it samples {ids[0]} of a vocabulary of {plan.vocab}")
    return list(logits[0])


def _runs(subject: Subject) -> None:
    checkpoint, plan = _tiny(subject)
    logits = _logits(plan, _weights(plan), [list(_IDS)])
    if plan.vocab != checkpoint.config["vocab_size"] or len(logits) != plan.vocab:
        raise BrokenError(f"{len(logits)} logits, the config's vocab_size is {checkpoint.config['vocab_size']}")
    if not all(map(math.isfinite, logits)) or len(set(logits)) == 1:
        raise BrokenError(f"logits are {logits[:4]} …: not finite, or all the same")


def _same(subject: Subject) -> None:
    checkpoint, plan = _tiny(subject)
    config, tensors = ([*table.items()][::-1] for table in (checkpoint.config, checkpoint.tensors))
    other = _checkpoint(dict(config), dict(tensors))
    if (
        len({plan_sha256(_lowered(subject, item)) for item in (checkpoint, checkpoint, other)} | {plan_sha256(plan)})
        > 1
    ):
        raise BrokenError("lowering again, or with keys in another order, gives another plan")


def _pieces(subject: Subject) -> None:
    """What the cache keeps stands for the tokens before."""
    _, plan = _tiny(subject)
    weights, ids = _weights(plan), list(_IDS)
    whole = _logits(plan, weights, [ids])
    for pieces in ([ids[:6], ids[6:]], [[token] for token in ids]):
        if not _near(_logits(plan, weights, pieces), whole):
            raise BrokenError(f"a prompt in {len(pieces)} steps has other logits than in one")


def _looks_back(subject: Subject) -> None:
    _, plan = _tiny(subject)
    weights, ids = _weights(plan), list(_IDS)
    whole = _logits(plan, weights, [ids])
    for what, other in (("another first token", [7, *ids[1:]]), ("two tokens swapped", [ids[1], ids[0], *ids[2:]])):
        if _near(_logits(plan, weights, [other]), whole):
            raise BrokenError(f"{what} changes nothing: attention or positions are left out")


def _each_counts(subject: Subject) -> None:
    """A tensor that can be anything is not read, or read in another's place."""
    checkpoint, plan = _tiny(subject)
    weights, ids = _weights(plan), [list(_IDS)]
    whole = _logits(plan, weights, ids)
    for weight in plan.weights:
        start = 0
        for source in weight.sources:  # a packed tensor may stack several
            end = start + (1, *checkpoint.tensors[source].shape)[-2]
            rows = list(weights[weight.name])
            rows[start:end] = [[1.5 * v + 0.25 for v in row] for row in rows[start:end]]
            start = end
            if _logits(plan, {**weights, weight.name: rows}, ids) == whole:
                raise BrokenError(f"the tensor {source} changes nothing")


def _refuses(subject: Subject) -> None:
    checkpoint, _ = _tiny(subject)
    config, tensors = checkpoint.config, checkpoint.tensors
    first, *_ = (name for name, tensor in tensors.items() if len(tensor.shape) == 2)
    rows, columns = tensors[first].shape
    narrow = {**tensors, first: Tensor(tensors[first].format, (rows, columns + 1))}
    bad: dict[str, tuple[Mapping[str, Any], Mapping[str, Tensor]]] = {
        f"a checkpoint without {name}": (config, {n: t for n, t in tensors.items() if n != name}) for name in tensors
    }
    bad[f"{first} of another shape"] = (config, narrow)
    bad["a tensor that nothing reads"] = (config, {**tensors, "model.nobody.weight": Tensor("f32", (4, 4))})
    bad["a config without vocab_size"] = ({k: v for k, v in config.items() if k != "vocab_size"}, tensors)
    bad["a vocab_size that is text"] = ({**config, "vocab_size": "48"}, tensors)
    for what, (other, table) in bad.items():
        try:
            _lowered(subject, _checkpoint(other, table))
        except PihError:
            continue
        except Exception as problem:
            raise BrokenError(f"{what} ends in {described(problem)}, not in an error of PIH's") from problem
        raise BrokenError(f"{what} is not refused")


def _near(some: list[float], others: list[float]) -> bool:
    most = max(map(abs, others))
    return all(abs(a - b) <= 1e-4 * most for a, b in zip(some, others, strict=True))


def _read(stream: TokenStream, ids: list[int]) -> list[str]:
    return [*(stream.push(token) for token in ids), stream.flush()]


def _round_trip(subject: Subject) -> None:
    with running(subject) as text:
        for words in _WORDS:
            ids = text.encode(words, 1000)
            back = "".join(_read(text.stream(), ids))
            if ids != text.encode(words, 1000) or back != words:
                raise BrokenError(f"{words!r} comes back as {back!r}")
        if text.encode("ab", 1000) == text.encode("ba", 1000):
            raise BrokenError("other letters have the same ids")
        if (text.stop_ids, dict(text.defaults)) != (frozenset({0}), {"temperature": 0.0}):
            raise BrokenError(f"stop ids {set(text.stop_ids)} and defaults {dict(text.defaults)} are not text.json's")


def _stream(subject: Subject) -> None:
    """Two streams at once, of characters of two to four ids."""
    with running(subject) as text:
        words = "é東🙂"
        ids = text.encode(words, 1000)
        one, two = text.stream(), text.stream()
        pieces = [(one.push(token), two.push(token)) for token in ids]
        for first, second in pieces:
            if first != second or "\ufffd" in first:
                raise BrokenError(f"a stream gives {first!r} and another {second!r} before a character is whole")
        half = _read(text.stream(), ids[:1])
        if half[0] or len(half[1]) != 1:
            raise BrokenError(f"of half a character a stream gives {half[0]!r}, and {half[1]!r} at the end")


def _limit(subject: Subject) -> None:
    with running(subject) as text:
        for words in ("x" * 100, "x" * 40000):
            count = len(text.encode(words, 1 << 20))
            for most, may in ((count, False), (8, True)):
                try:
                    found = text.encode(words, most)
                except TooLongError:
                    if not may:
                        raise BrokenError(f"a text of {count} ids is too long for {most}") from None
                    continue
                if len(found) != count:
                    raise BrokenError(f"a limit of {most} ids cuts {count} to {len(found)}")


def _chat(subject: Subject) -> None:
    with running(subject) as text:
        messages = [{"role": "user", "content": "what"}, {"role": "assistant", "content": "is"}]
        found = "".join(_read(text.stream(), text.chat(messages, {}, 1000)))
        if found != "user: what\nassistant: is\n":
            raise BrokenError(f"the template's text comes to {found!r}")
        try:
            text.chat([{"role": "odd", "content": "what"}], {}, 1000)
        except ValueError as refusal:
            if bundles.ODD in str(refusal):
                return
            raise BrokenError(f"the template refuses with {bundles.ODD!r}, and the caller is told {refusal}") from None
        raise BrokenError("what the template refuses is rendered")


def _damaged(subject: Subject) -> None:
    for replaced in ({"model/tokenizer.json": b"{"}, {"model/text.json": b"{}"}, {"model/text.json": b"["}):
        bundles.write(subject.root, subject.plan, subject.stored, replaced)
        try:
            provider = subject.call(subject.context())
        except PihError:
            continue
        stop(provider)
        raise BrokenError(f"it starts with {next(iter(replaced))} = {next(iter(replaced.values()))!r}")

"""Cases run on a started backend, and its logits and ids against the oracle's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from pih.conformance.cases import Case, Untried, cases
from pih.conformance.findings import BrokenError, Named, SkippedError
from pih.conformance.formats import Rows
from pih.conformance.oracle import Oracle
from pih.conformance.steps import LIMITS, PAGE_SIZE, largest
from pih.conformance.subject import Subject
from pih_runtime.errors import PihError, described
from pih_runtime.step import Step


def checks(subject: Subject) -> Iterator[Named]:
    """Of a backend and of a kernel pack: each entry of the report in several shapes; the order tells the first case."""
    tried = list(cases(subject.report, subject.isa))
    first = next((case for case in tried if isinstance(case, Case)), None)
    if subject.kind == "backend":
        yield "limits: a bad step is an error", partial(refuses, subject, first)
        yield "limits: a ticket is good once", partial(once, subject, first)
        yield "limits: at most two steps are in flight", partial(two, subject, first)
        yield "limits: after stop nothing runs", partial(ended, subject, first)
        yield "limits: two backends keep to themselves", partial(apart, subject, first)
    for case in tried:
        yield f"op: {case.name}", partial(compare, subject, case)
    yield "op: rows do not depend on their company", partial(alone, subject, tried)


def stored(case: Case) -> dict[str, bytes]:
    """The case's weights as they lie in the packed file."""
    return {name: made.data for name, made in case.draft.stored.items()}


def compare(subject: Subject, case: Case | Untried) -> None:
    """Every step's logits within the tolerance of the kernel's precision mode; its ids those of the logits."""
    if isinstance(case, Untried):
        raise SkippedError(case.why)
    backend = subject.start(case.plan, stored(case))
    oracle = Oracle(case.plan, {name: made.values for name, made in case.draft.stored.items()})
    try:
        for number, step in enumerate(case.steps):
            ids = list(backend.wait(backend.submit(step)))
            logits = [list(row) for row in backend.logits()]
            wanted_ids, wanted = oracle.run(step)
            _close(logits, wanted, case, number)
            exact = case.name.startswith("sample")
            for row, (token, right) in enumerate(zip(ids, wanted_ids, strict=True)):
                if token != right and (exact or not _tie(wanted[row], token, right, case)):
                    raise BrokenError(f"step {number}, row {row}: sampled {token}, not {right}: {step.sampling[row]}")
            oracle.follow(step, ids)
    finally:
        backend.stop()


def _tie(row: list[float], token: int, right: int, case: Case) -> bool:
    return abs(row[token] - row[right]) <= 2 * case.tolerance * max(map(abs, row))


def _close(got: Rows, wanted: Rows, case: Case, number: int) -> None:
    if [len(row) for row in got] != [len(row) for row in wanted]:
        raise BrokenError(f"step {number}: logits of {[len(row) for row in got]}, not {[len(row) for row in wanted]}")
    for row, (mine, right) in enumerate(zip(got, wanted, strict=True)):
        largest = max(map(abs, right))
        for column, (a, b) in enumerate(zip(mine, right, strict=True)):
            if not math.isfinite(a) or abs(a - b) > case.tolerance * largest + 1e-37:
                raise BrokenError(
                    f"step {number}, row {row}, column {column}: {a!r}, not {b!r}; "
                    f"the report's mode allows {case.tolerance:g} of the row's largest value"
                )


def alone(subject: Subject, tried: Iterable[Case | Untried]) -> None:
    """A sequence gives the same bits alone as beside others, in a small step and in the largest."""
    for op in ("attention", "linear"):
        case = next((item for item in tried if isinstance(item, Case) and item.name.startswith(op)), None)
        if case is None:
            raise SkippedError(f"no {op} to try it with")
        for step in (case.steps[0], largest(case.plan.vocab)):
            together = _once(subject, case, step)
            singles = [row for part in _parts(step) for row in _once(subject, case, part)]
            if sorted(together) != sorted(singles):
                raise BrokenError(f"{case.name}: a sequence's logits differ by what else is in its step")


def _once(subject: Subject, case: Case, step: Step) -> list[bytes]:
    backend = subject.start(case.plan, stored(case))
    try:
        backend.wait(backend.submit(step))
        return [array("f", row).tobytes() for row in backend.logits()]
    finally:
        backend.stop()


def _parts(step: Step) -> Iterable[Step]:
    """Each sequence of a step as a step of its own."""
    for index, (start, stop) in enumerate(pairwise(step.seq_start)):
        rows = [row - start for row in step.rows if start <= row < stop]
        pages = step.page_table[index * step.pages_per_seq : (index + 1) * step.pages_per_seq]
        yield Step(
            step.ids[start:stop], step.positions[start:stop], array("i", [0, stop - start]), pages, step.pages_per_seq,
            step.slots[start:stop], array("i", rows), array("i", range(len(rows))), step.sampling[: len(rows)],
        )  # fmt: skip


def refuses(subject: Subject, case: Case | None) -> None:
    """Steps past the plan's limits are errors, and the backend serves on."""
    case = _tried(case)
    backend, good = subject.start(case.plan, stored(case)), case.steps[0]
    largest, many = array("i", [case.plan.vocab]), LIMITS.tokens + 1
    spread = array("i", range(many))
    bad = {
        "an id past the vocabulary": replace(good, ids=largest + good.ids[1:]),
        "a position past the context": replace(good, positions=array("i", [LIMITS.context]) + good.positions[1:]),
        "more tokens than the limit": replace(
            good, ids=array("i", [0] * many), positions=spread, slots=spread, seq_start=array("i", [0, many]),
            page_table=array("i", range(many // PAGE_SIZE + 1)), pages_per_seq=many // PAGE_SIZE + 1,
        ),
        "a wanted row that is no token": replace(good, rows=array("i", [len(good.ids)]) + good.rows[1:]),
        "more pages than a context has": replace(
            good, page_table=array("i", [0] * (len(good.seq_start) - 1) * (LIMITS.context + 1)),
            pages_per_seq=LIMITS.context + 1,
        ),
        "a sampling slot past the limit": replace(good, row_slots=array("i", [LIMITS.seqs]) + good.row_slots[1:]),
    }  # fmt: skip
    try:
        for what, step in bad.items():
            _refused(lambda step=step: backend.wait(backend.submit(step)), what)  # type: ignore[misc]
        backend.wait(backend.submit(good))
    finally:
        backend.stop()


def once(subject: Subject, case: Case | None) -> None:
    """A ticket that was waited for is an error, as is what never was one, and makes no room for a step in flight."""
    case = _tried(case)
    backend, good = subject.start(case.plan, stored(case)), case.steps[0]
    try:
        for what in (None, object(), 1 << 40):
            _refused(lambda what=what: backend.wait(what), f"{what!r} as a ticket")  # type: ignore[misc]
        waited = backend.submit(good)
        ids = list(backend.wait(waited))
        flying = [backend.submit(good), backend.submit(good)]
        _refused(lambda: backend.wait(waited), "a ticket that was waited for")
        if [list(backend.wait(ticket)) for ticket in flying] != [ids, ids]:
            raise BrokenError("the ids of a step differ when it is run again")
    finally:
        backend.stop()


def two(subject: Subject, case: Case | None) -> None:
    """A third is refused while two are not waited for, takes nothing from these, and is served afterwards."""
    case = _tried(case)
    backend, good = subject.start(case.plan, stored(case)), case.steps[0]
    try:
        ids = list(backend.wait(backend.submit(good)))
        for _ in range(3):
            flying = [backend.submit(good), backend.submit(good)]
            _refused(lambda: backend.submit(good), "a third step in flight")
            for ticket in flying:
                if list(backend.wait(ticket)) != ids:
                    raise BrokenError("the ids of a step differ when a third was refused meanwhile")
    finally:
        backend.stop()


def ended(subject: Subject, case: Case | None) -> None:
    """Whoever is late is told; what a plan's memory held is not shown."""
    case = _tried(case)
    backend, good = subject.start(case.plan, stored(case)), case.steps[0]
    try:
        backend.wait(backend.submit(good))
    finally:
        backend.stop()
    _refused(lambda: backend.submit(good), "a step after stop")
    if rows := len(backend.logits()):
        raise BrokenError(f"after stop there are logits of {rows} rows")


def apart(subject: Subject, case: Case | None) -> None:
    """Of two in one process each goes on from its own last ids, and lives on when the other stops."""
    case = _tried(case)
    prefill, decode, *_, other = case.steps
    wanted: list[list[int]] = []
    for beside in (False, True):
        backend = subject.start(case.plan, stored(case))
        try:
            found = list(backend.wait(backend.submit(prefill)))
            if beside:
                second = subject.start(case.plan, stored(case))
                try:
                    second.wait(second.submit(other))
                finally:
                    second.stop()
            wanted.append(found + list(backend.wait(backend.submit(decode))))
        finally:
            backend.stop()
    if wanted[0] != wanted[1]:
        raise BrokenError(f"the ids are {wanted[1]} beside a second backend, and {wanted[0]} without one")


def _tried(case: Case | None) -> Case:
    if case is None:
        raise SkippedError("the report has no op that can be tried here")
    return case


def _refused(action: Callable[[], object], what: str) -> None:
    try:
        action()
    except PihError:
        return
    except Exception as problem:
        raise BrokenError(f"{what} ends in {described(problem)}, not in a WorkerError") from problem
    raise BrokenError(f"{what} is not refused")

"""execution/continuous: every request ends with the right ids, whatever its company, pool and chunks."""

from collections import deque
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from pih_execution_continuous.answer import Answer
from pih_execution_continuous.batch import step_of
from pih_execution_continuous.scheduler import Scheduler
from pih_execution_continuous.sequence import Sequence
from pih_memory_paged import PagedPool
from toy_backend import ToyBackend, answer

from pih_runtime.contracts import Request
from pih_runtime.plan import Cache, Limits, Plan
from pih_runtime.step import Sampling

VOCAB = 5
PAGE = 4


class Numbers:
    """A token stream that writes ids."""

    def push(self, token):
        return f"{token} "

    def flush(self):
        return ""


def toy(tokens, seqs, context, pages):
    cache = Cache("kv", layers=1, kv_heads=1, head_dim=1, page_size=PAGE, pages=pages, dtype="f32")
    plan = Plan("toy", Limits(tokens, seqs, context), VOCAB, 0, (), (cache,), (), ())
    return ToyBackend(plan, list(range(VOCAB)))


class Run:
    """The engine's loop without its threads, with a look at every step."""

    def __init__(self, backend, depth=2):
        self.backend = backend
        self.depth = depth
        cache = backend.plan.caches[0]
        self.pool = PagedPool(cache.pages, cache.page_size)
        self.scheduler = Scheduler(backend.plan.limits, self.pool)
        self.flights = deque()
        self.finished = []
        self.steps = []
        self.batches = []
        self.keys = count()

    def add(self, prompt, new, sampling=None):
        request = Request(tuple(prompt), new, sampling or Sampling(), frozenset())
        text = Answer(request, Numbers(), new)
        sequence = Sequence(next(self.keys), request, len(prompt) + new, list(prompt), text, deliver=None)
        self.scheduler.add(sequence)
        return sequence

    def step(self):
        """One turn; False where nothing is left to do."""
        decoding = {s for s in self.scheduler.running if s.remaining == 1 and s.length < s.limit}
        shares = self.scheduler.schedule()
        if shares:
            self.steps.append(shares)
            self.check(shares, decoding)
            self.batches.append(step_of(shares, self.pool))
            self.flights.append((shares, self.backend.submit(self.batches[-1])))
        if self.flights and (len(self.flights) == self.depth or not shares):
            done, ticket = self.flights.popleft()
            for sequence, token in self.scheduler.book(done, self.backend.wait(ticket)):
                piece = sequence.answer.push(token)
                if piece.finish:
                    self.finished.append(sequence)
                    self.scheduler.end(sequence)
        return not self.scheduler.idle

    def check(self, shares, decoding):
        limits = self.backend.plan.limits
        assert sum(share.count for share in shares) <= limits.tokens
        served = {share.sequence for share in shares}
        assert len(served) == len(shares)
        for sequence in decoding:  # no decode waits for a prompt; only pages can stop it
            assert sequence in served or sequence.slot < 0
        keys = [sequence.key for sequence in (*self.scheduler.running, *self.scheduler.waiting)]
        assert keys == sorted(keys), "a younger sequence overtook an older one"

    def finish(self, most=20_000):
        for _ in range(most):
            if not self.step():
                break
        assert self.scheduler.idle
        assert self.pool.pages_free() == self.pool.pages_total


@st.composite
def cases(draw):
    context = draw(st.integers(3, 30))
    seqs = draw(st.integers(1, 4))
    tokens = draw(st.integers(seqs, seqs + 9))
    least = -(-context // PAGE)
    pages = draw(st.integers(least, least * 3))
    requests = draw(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 1), min_size=1, max_size=context - 1),
                st.integers(1, context),
                st.integers(0, 12),  # turn in which it arrives
                st.none() | st.integers(0, 30),  # turn in which it is cancelled
                st.sampled_from([Sampling(), Sampling(temperature=1.0, seed=3)]),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return (tokens, seqs, context, pages), requests, draw(st.integers(1, 2))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_request_ends_with_the_ids_it_would_have_alone(case):
    limits, requests, depth = case
    run = Run(toy(*limits), depth)
    live = {}
    for turn in range(31):
        for index, (prompt, new, arrival, _, sampling) in enumerate(requests):
            if arrival == turn:
                live[index] = run.add(prompt, min(new, limits[2] - len(prompt)), sampling)
        for index, (_, _, _, cancelled, _) in enumerate(requests):
            if cancelled == turn and index in live and not live[index].done:
                run.scheduler.end(live[index])
        run.step()
    run.finish()
    for index, (prompt, _, _, _, sampling) in enumerate(requests):
        sequence = live[index]
        new = sequence.ids[len(prompt) :]
        assert new == answer(prompt, len(new), list(range(VOCAB)), sampling)
        if sequence in run.finished:
            assert len(new) == sequence.limit - len(prompt)
        else:
            assert requests[index][3] is not None


def test_a_long_prompt_is_taken_in_chunks_while_others_decode():
    run = Run(toy(tokens=8, seqs=2, context=64, pages=32))
    run.add([1], 30)
    run.step()
    run.add([0] * 40, 2)
    run.finish()
    mixed = [shares for shares in run.steps if len(shares) == 2 and shares[1].count > 1]
    assert [shares[1].count for shares in mixed] == [7, 7, 7, 7, 7, 5]
    assert all(shares[0].count == 1 for shares in mixed)


def test_the_youngest_gives_way_when_pages_run_out_and_ends_all_the_same():
    run = Run(toy(tokens=16, seqs=2, context=32, pages=8))
    old, young = run.add([0] * 8, 24), run.add([1] * 8, 24)
    run.finish()
    assert run.scheduler.preemptions > 0
    assert run.finished == [old, young]
    assert old.residence == 1


def test_an_equal_prompt_starts_from_the_cache_also_across_chunks():
    run = Run(toy(tokens=4, seqs=1, context=64, pages=32))
    first, second = run.add([3] * 18, 2), run.add([3] * 18, 2)
    run.finish()
    assert (first.answer.cached, second.answer.cached) == (0, 16)
    assert first.ids == second.ids


def test_two_steps_are_in_flight_while_decoding():
    run = Run(toy(tokens=4, seqs=1, context=64, pages=32))
    run.add([1], 20)
    run.step()
    run.step()
    assert run.scheduler.running[0].flying == 1
    assert [list(batch.ids) for batch in run.batches] == [[1], [-1]]

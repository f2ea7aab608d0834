"""execution/continuous: threads, cancelling, draining, failing."""

import threading

import pytest
from pih_execution_continuous import start
from pih_execution_continuous.engine import ContinuousEngine
from pih_memory_paged import PagedPool
from toy_backend import FREE_STEPS, ToyBackend, answer

from pih_runtime.contracts import Context, Request
from pih_runtime.errors import WorkerError
from pih_runtime.plan import Cache, Limits, Plan
from pih_runtime.step import Sampling
from tests.support.waiting import PATIENCE

VOCAB = 50
CHOICES = list(range(VOCAB))


class Numbers:
    """model.text, as far as the engine uses it: ids as numbers."""

    def stream(self):
        return self

    def push(self, token):
        return f"{token} "

    def flush(self):
        return ""


class Listener:
    """Collects one answer."""

    def __init__(self):
        self.pieces = []
        self.ended = threading.Event()
        self.first = threading.Event()

    def __call__(self, piece):
        self.pieces.append(piece)
        self.first.set()
        if piece.finish:
            self.ended.set()

    def ids(self):
        assert self.ended.wait(PATIENCE)
        return [int(number) for piece in self.pieces for number in piece.text.split()]


@pytest.fixture
def make():
    engines = []

    def made(queue=100, **backend):
        cache = Cache("kv", layers=1, kv_heads=1, head_dim=1, page_size=4, pages=64, dtype="f32")
        plan = Plan("toy", Limits(tokens=8, seqs=4, context=128), VOCAB, 0, (), (cache,), (), ())
        failures = []
        engine = ContinuousEngine(
            ToyBackend(plan, CHOICES, **backend), PagedPool(64, 4), Numbers(), queue, failures.append
        )
        engine.failures = failures
        engines.append(engine)
        return engine

    yield made
    for engine in engines:
        engine.stop()


def request(prompt, new=10, **rest):
    return Request(tuple(prompt), new, Sampling(), frozenset(rest.pop("stop_ids", ())), **rest)


def test_requests_from_many_threads_each_get_their_own_answer(make):
    engine = make()
    listeners = [Listener() for _ in range(20)]
    threads = [
        threading.Thread(target=engine.generate, args=(request([n, 7, n], 15), listener))
        for n, listener in enumerate(listeners)
    ]
    for thread in threads:
        thread.start()
    for n, listener in enumerate(listeners):
        assert listener.ids() == answer([n, 7, n], 15, CHOICES)
        assert listener.pieces[-1].tokens == 15


def test_a_cancelled_request_ends_without_a_word_and_gives_its_place_back(make):
    engine = make(seconds=0.1)  # a whole answer takes twelve seconds
    listener = Listener()
    cancel = engine.generate(request([1], 120), listener)
    assert listener.first.wait(PATIENCE)
    cancel()
    cancel()
    engine.drain()
    assert not listener.ended.is_set()
    assert {name: value for name, _, _, value in engine.metrics()}["pih_kv_pages_free"] == 64


def test_drain_lets_running_requests_end_and_takes_no_more(make):
    engine = make(seconds=0.002)
    listener = Listener()
    engine.generate(request([1], 50), listener)
    engine.drain()
    assert listener.ended.is_set()
    assert len(listener.ids()) == 50
    with pytest.raises(WorkerError, match="stopping"):
        engine.generate(request([1]), Listener())


def test_stop_ends_what_still_runs_with_a_reason(make):
    engine = make(seconds=0.1)
    running, waiting = Listener(), [Listener() for _ in range(6)]
    engine.generate(request([1], 120), running)
    for listener in waiting:
        engine.generate(request([1], 120), listener)
    assert running.first.wait(PATIENCE)
    engine.stop()
    for listener in (running, *waiting):
        assert listener.pieces[-1].finish == "error"
        assert "stopping" in listener.pieces[-1].text


def test_a_backend_error_ends_every_request_with_its_words_and_is_the_first_cause(make, tmp_path):
    engine = make(fail_at=FREE_STEPS, gate=tmp_path / "gate")
    listeners = [Listener() for _ in range(8)]
    for listener in listeners:
        engine.generate(request([1], 100), listener)
    (tmp_path / "gate").touch()
    for listener in listeners:
        assert listener.ended.wait(PATIENCE)
        assert listener.pieces[-1].finish == "error"
        assert "the toy broke, as told" in listener.pieces[-1].text
    assert [str(problem) for problem in engine.failures] == ["the toy broke, as told"]
    with pytest.raises(WorkerError, match="the toy broke"):
        engine.generate(request([1]), Listener())


def test_the_context_ends_an_answer(make):
    engine = make()
    listener = Listener()
    engine.generate(request([5] * 120, 10_000), listener)
    assert len(listener.ids()) == 8
    assert listener.pieces[-1].finish == "length"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [([], "empty"), ([1] * 128, "128 tokens; the context is 128"), ([VOCAB], "outside 0..49"), ([-1], "outside 0..49")],
)
def test_a_prompt_that_cannot_run_is_refused(make, prompt, words):
    with pytest.raises(ValueError, match=words):
        make().generate(request(prompt), Listener())


def test_more_requests_than_the_queue_holds_are_refused(make):
    engine = make(queue=2, seconds=0.1)
    for _ in range(2):
        engine.generate(request([1], 50), Listener())
    with pytest.raises(WorkerError, match="takes no more"):
        engine.generate(request([1]), Listener())


def test_metrics_count_what_happened(make):
    engine = make()
    for _ in range(2):
        listener = Listener()
        engine.generate(request([3] * 9, 4), listener)
        listener.ids()
    engine.drain()
    values = {name: value for name, _, _, value in engine.metrics()}
    assert values["pih_requests_total"] == 2
    assert values["pih_prompt_tokens_total"] == 18
    assert values["pih_cached_tokens_total"] == 8
    assert values["pih_generated_tokens_total"] == 8
    assert values["pih_requests_running"] == values["pih_requests_waiting"] == 0


def test_a_plan_whose_step_cannot_decode_all_sequences_is_refused(tmp_path):
    plan = Plan("toy", Limits(tokens=3, seqs=4, context=8), VOCAB, 0, (), (), (), ())
    providers = {"backend.device": ToyBackendLike(plan)}
    context = Context(tmp_path, {}, {}, "", providers.__getitem__, print, lambda: False, print)
    with pytest.raises(WorkerError, match="3 tokens cannot decode 4 sequences"):
        start(context)


class ToyBackendLike:
    def __init__(self, plan):
        self.plan = plan

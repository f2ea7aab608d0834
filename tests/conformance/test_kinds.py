# ruff: noqa: E501 - what is broken reads best in one line
"""Behaviour of each kind: what `pih plugin new` writes passes, and each way not to keep the contract is found."""

import json

import pytest

from pih.conformance import new, suite
from tests.conformance.checks import bring, found
from tests.support.program import ROOT, pih

# Kind: what is broken: (file, what it says, what it says then), and the check that must fail.
BROKEN = {
    "platform": {
        "more threads than it may use": ("cpu.py", "max(1, min(len(os.sched_getaffinity(0)), ", "max(1, min(1 << 20, ", "host: threads that it may use"),
        "the lock's threads ignored": ("__init__.py", 'min(target["threads"], cpu.count(limits.cpus))', "cpu.count(limits.cpus)", "host: threads that it may use"),
        "memory in the wrong unit": ("cpu.py", "int(line.split()[1]) * 1024", "int(line.split()[1]) * 1024000", "host: memory that there is"),
        "the machine's memory": ("__init__.py", "min(limits.memory_bytes, cpu.memory_bytes(root))", "cpu.memory_bytes(root)", "host: the cgroup's limit of memory"),
        "instruction sets that are not there": ("cpu.py", "frozenset(name for name, needed in LEVELS.items() if needed <= found)", "frozenset()", "host: instruction sets that the CPU has"),
        "any lock will do": ("__init__.py", '    check(host, flags, target["isa"], budget)\n', "", "host: a lock for another machine is refused"),
        "takes a signal": ("__init__.py", '    root = Path("/")\n', '    root = Path("/")\n    import signal\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n', "lifecycle: signals, folder and umask are the worker's"),
    },
    "storage": {
        "the tensor before": ("mapped.py", "self.file.data[tensor.start : tensor.end]", "self.file.data[tensor.start - 1 : tensor.end - 1]", "weights: tensors as they were packed"),
        "no error for what is not there": ("mapped.py", "found = self.tensors.get(name)", 'found = self.tensors.get(name, self.tensors["w0"])', "weights: tensors as they were packed"),
        "digest unchecked": ("chunks.py", "if table.holds(index, data):", "if True:", "weights: one bit that is not the sealed one is refused (embed, start)"),
        "shapes unchecked": ("header.py", "if math.prod(shape) * DTYPE_BITS[dtype] // 8 != offsets[1] - offsets[0]", "if not shape", "weights: a shape that does not fill its bytes is refused"),
        "cover unchecked": ("header.py", "if tensor.start != end:", "if False:", "weights: a tensor laid over another is refused"),
        "end unchecked": ("header.py", "    if end != size:", "    if end > size + 64:", "weights: data cut short is refused"),
        "tensors unchecked": ("__init__.py", "        check_against(weights.tensors, wanted.stored, str(path))\n", "", "weights: tensors of other lengths than the plan's is refused"),
        "an error that is no error of PIH's": ("file.py", "except (OSError, ValueError) as problem:  # ", "except OSError as problem:  # ", "weights: an empty file is refused"),
        "digests of tensors untried": ("mapped.py", 'last = self.chunks.check({f"tensor {tensor.name!r}": (tensor.start, tensor.end) for tensor in wanted})', "last = False", "weights: one bit that is not the sealed one is refused (embed, start)"),
        "the header's digest untried": ("mapped.py", '        if chunks is not None:\n            chunks.check({"the header": (0, extent(data))})\n', "", "weights: names that changed places are refused"),
        "changes unnoticed": ("file.py", "if _state(self._descriptor) != self._state:", "if False:", "weights: what is changed while it is in use is told"),
        "never checked at first use": ("__init__.py", "            weights.check(weights.tensors)\n        file", "            weights.check(weights.tensors)\n        else:\n            chunks._left.clear()\n        file", "weights: one bit that is not the sealed one is refused (embed, first-use)"),
        "a tensor's first chunk alone": ("mapped.py", "(tensor.start, tensor.end) for", "(tensor.start, tensor.start + 1) for", "weights: one bit that is not the sealed one is refused (embed, start)"),
        "a tensor's whole chunks alone": ("mapped.py", "(tensor.start, tensor.end) for", "(-(-tensor.start // 4096) * 4096, tensor.end // 4096 * 4096) for", "weights: one bit that is not the sealed one is refused (embed, first-use)"),
        "tensor without a check": ("mapped.py", "        self.check((name,))\n", "", "weights: one bit that is not the sealed one is refused (embed, first-use)"),
        "check of the first alone": ("mapped.py", "for tensor in wanted})", "for tensor in wanted[:1]})", "weights: one bit that is not the sealed one is refused (embed, start)"),
        "an error once": ("chunks.py", "                raise self._broken\n            held", "                broken, self._broken, self._left = self._broken, None, set()\n                raise broken\n            held", "weights: one bit that is not the sealed one is refused (embed, first-use)"),
        "separate weights unchecked": ("expected.py", "    if not pin and not path.exists():\n", "    if not path.exists() or pin:\n", "weights: one bit that is not the sealed one is refused (separate, start)"),
        "a pin ignored": ("expected.py", "if wanted and have != wanted:", "if False:", "weights: digests that nobody vouches for are refused"),
        "no digests is fine": ("expected.py", "    if not pin and not path.exists():\n", "    if not path.exists():\n", "weights: digests that nobody vouches for are refused"),
        "another kind of error": ("chunks.py", "return SealError(", "from pih_runtime.errors import WorkerError\n        return WorkerError(", "weights: one bit that is not the sealed one is refused (embed, start)"),
    },
    "memory": {
        "a page never given back": ("pool.py", "                    self._free.append(page)\n", "                    pass\n", "pages: counted, and given back"),
        "taken although refused": ("pool.py", "        if missing > self.pages_free():\n            return False\n", "        if missing > self.pages_free():\n            holding.pages += self._free\n            self._free = []\n            return False\n", "pages: too few are refused, and none taken"),
        "the whole prompt is known": ("pool.py", "(len(ids) - 1) // self.page_size)", "len(ids) // self.page_size)", "pages: a prefix is reused only after the same ids"),
        "a page by its own ids alone": ("pool.py", "hashlib.sha256(chain + block.tobytes())", "hashlib.sha256(block.tobytes())", "pages: what is in them is what was computed"),
        "remembered after it was taken": ("pool.py", "        del self._page_of[self._hash_of.pop(page)]\n", "        self._hash_of.pop(page)\n", "pages: what is in them is what was computed"),
        "shared pages freed with their first user": ("pool.py", "            if self._users[page] == 0:\n", "            if True:\n", "pages: what is in them is what was computed"),
        "the first id of a page alone": ("pool.py", "block.tobytes()", "block[:1].tobytes()", "pages: each id of a prefix counts, and its place"),
        "half of a page's ids": ("pool.py", "block.tobytes()", "block[: len(block) // 2].tobytes()", "pages: each id of a prefix counts, and its place"),
        "a sum of a page's ids": ("pool.py", "block.tobytes()", "bytes([sum(block) % 251])", "pages: each id of a prefix counts, and its place"),
        "the low bits of ids": ("pool.py", "block.tobytes()", "bytes(token & 255 for token in block)", "pages: each id of a prefix counts, and its place"),
        "16 bits of ids": ("pool.py", "block.tobytes()", "array('H', [token & 65535 for token in block]).tobytes()", "pages: each id of a prefix counts, and its place"),
        "no ids at all": ("pool.py", "(index + 1)", "(index - 1)", "pages: what is in them is what was computed"),
        "ids in any order": ("pool.py", "block.tobytes()", "array('i', sorted(block)).tobytes()", "pages: each id of a prefix counts, and its place"),
        "an exclusive or": ("pool.py", "block.tobytes()", "bytes(str(__import__('functools').reduce(int.__xor__, block)), 'ascii')", "pages: each id of a prefix counts, and its place"),
        "a page short hash": ("pool.py", "block.tobytes()).digest()", "block.tobytes()).digest()[:1]", "pages: each id of a prefix counts, and its place"),
        "all but the last id": ("pool.py", "block.tobytes()", "block[:-1].tobytes()", "pages: each id of a prefix counts, and its place"),
        "another order of pages": ("pool.py", "            holding.pages.append(page)\n        return True", "            holding.pages.insert(0, page)\n        return True", "pages: counted, and given back"),
        "idle pages not counted": ("pool.py", "return len(self._free) + len(self._idle)", "return len(self._free)", "pages: too few are refused, and none taken"),
        "one cache of prefixes": ("pool.py", "self._page_of: dict[bytes, int] = {}  # prefix", "self._page_of: dict[bytes, int] = globals().setdefault('KNOWN', {})  # prefix", "pages: two pools keep to themselves"),
        "evicts what is in use": ("pool.py", "page = next(iter(self._idle))\n        del self._idle[page]", "page = next(iter(self._hash_of))\n        self._idle.pop(page, None)", "pages: what is in them is what was computed"),
        "pages dropped when asked for less": ("pool.py", "        if missing > self.pages_free():\n            return False\n", "        if missing > self.pages_free():\n            return False\n        while missing < 0:\n            self._free.append(holding.pages.pop())\n            missing += 1\n", "pages: counted, and given back"),
        "an idle page is free too": ("pool.py", "            self._idle.pop(page, None)\n", "", "pages: what is in them is what was computed"),
        "refused at the last page": ("pool.py", "if missing > self.pages_free()", "if missing >= max(1, self.pages_free())", "pages: too few are refused, and none taken"),
        "chain restarts at computed": ("pool.py", "holding.known, holding.chain = holding.known + 1, chain\n\n", "holding.known += 1\n\n", "pages: what is in them is what was computed"),
        "begin forgets the chain": ("pool.py", "            holding.known, holding.chain = holding.known + 1, chain\n        return", "            holding.known += 1\n        return", "pages: what is in them is what was computed"),
    },
    "execution": {
        "more tokens than a step holds": ("scheduler.py", "        budget = self._limits.tokens\n", "        budget = self._limits.tokens + 4\n", "engine: each request has its own answer, within the plan's limits"),
        "three steps in flight": ("engine.py", "IN_FLIGHT = 2", "IN_FLIGHT = 3", "engine: each request has its own answer, within the plan's limits"),
        "positions off by one": ("batch.py", "positions.extend(range(share.start, end))", "positions.extend(range(share.start + 1, end + 1))", "engine: each request has its own answer, within the plan's limits"),
        "the last come first": ("scheduler.py", "        self.waiting.append(sequence)\n", "        self.waiting.append(sequence)\n        self.waiting = deque(sorted(self.waiting, key=lambda s: len(s.ids)))\n        if self.running and len(sequence.ids) < 9:\n            for old in [r for r in self.running if len(r.ids) > 9]:\n                self._leave(old)\n                self.waiting.append(old)\n", "engine: a long prompt does not starve"),
        "stop ids ignored": ("answer.py", "if token in self._request.stop_ids", "if token < 0", "engine: stop ids, stop strings and length end an answer"),
        "stop strings delivered": ("answer.py", 'self._piece(self._held[:stop], "stop")\n        if self.tokens', 'self._piece(self._held, "stop")\n        if self.tokens', "engine: stop ids, stop strings and length end an answer"),
        "prompts as they come": ("engine.py", "if len(request.prompt) >= self.context", "if not request.prompt", "engine: what does not fit is refused"),
        "deaf to cancelling": ("engine.py", "return lambda: self._inbox.put(lambda: self._end(sequence))", "return lambda: None", "engine: a cancelled request says no more and gives its pages back"),
        "drain that does not wait": ("engine.py", "self._changed.wait_for(lambda: self._active == 0)", "pass", "engine: drain lets requests end, and takes no more"),
        "drain that takes more": ("engine.py", '    def drain(self) -> None:\n        """Accept nothing more and return when all requests have ended."""\n        with self._changed:\n            self._refusal = self._refusal or "the worker is stopping"\n', '    def drain(self) -> None:\n        """Wait."""\n        with self._changed:\n', "engine: drain lets requests end, and takes no more"),
        "silent at stop": ("engine.py", "            sequence.deliver(sequence.answer.failed(reason))\n", "", "engine: stop ends what runs, with an error"),
        "a failure kept to itself": ("engine.py", "            self._fail(problem)\n", "            pass\n", "engine: a backend that fails is told to everyone"),
        "a preempted request is lost": ("scheduler.py", "            self.waiting.appendleft(youngest)\n", "", "engine: short of pages, each request has its own answer still"),
        "a preempted request keeps its pages": ("scheduler.py", "        self._pool.end(sequence.key)\n        self._slots.append", "        self._slots.append", "engine: short of pages, each request has its own answer still"),
        "the oldest gives way": ("scheduler.py", "youngest = self.running[-1]", "youngest = self.running[0]", "engine: short of pages, each request has its own answer still"),
        "a step from before counts": ("scheduler.py", "if share.residence == sequence.residence:", "if True:", "engine: short of pages, each request has its own answer still"),
        "no page for the next position": ("scheduler.py", "self._pool.grow(sequence.key, sequence.scheduled + 1)", "self._pool.grow(sequence.key, sequence.scheduled)", "engine: each request has its own answer, within the plan's limits"),
        "what is known is computed again": ("scheduler.py", "sequence.scheduled = sequence.computed = reused\n", "sequence.scheduled = sequence.computed = 0\n", "engine: what the cache has is not computed again, and told"),
        "one page more is known": ("scheduler.py", "sequence.scheduled = sequence.computed = reused\n", "sequence.scheduled = sequence.computed = reused and reused + 1\n", "engine: what the cache has is not computed again, and told"),
        "cached ids untold": ("scheduler.py", "            sequence.answer.cached = reused\n", "            pass\n", "engine: what the cache has is not computed again, and told"),
        "one at a time": ("scheduler.py", "self._slots = list(range(limits.seqs - 1, -1, -1))", "self._slots = [0]", "engine: each request has its own answer, within the plan's limits"),
        "everyone sampled as the first": ("batch.py", "tuple(share.sequence.request.sampling for", "tuple(shares[0].sequence.request.sampling for", "engine: each request has its own answer, within the plan's limits"),
        "the waiting cannot be cancelled": ("scheduler.py", "        else:\n            self.waiting.remove(sequence)\n            self._full = False\n", "", "engine: a cancelled request says no more and gives its pages back"),
        "an end counted twice": ("engine.py", "        if sequence.done:\n            return\n        self._scheduler.end(sequence)\n", "        if not sequence.done:\n            self._scheduler.end(sequence)\n", "engine: a cancelled request says no more and gives its pages back"),
        "tokens counted twice": ("answer.py", "        self.tokens += 1\n", "        self.tokens += 2\n", "engine: each request has its own answer, within the plan's limits"),
        "serves after stop": ("engine.py", '        with self._changed:\n            self._refusal = self._refusal or "the worker is stopping"\n        self._inbox.put(self._halt)', "        self._inbox.put(self._halt)\n        self._end_all = lambda reason: [s.deliver(s.answer.failed(reason)) or self._end(s) for s in (*self._scheduler.running, *self._scheduler.waiting)]", "engine: stop ends what runs, with an error"),
        "a step's failure is waited for": ("engine.py", "self._book(done, self._backend.wait(ticket))", "try:\n                    self._book(done, self._backend.wait(ticket))\n                except WorkerError:\n                    pass", "engine: a step that fails is told to everyone"),
        "metrics without a type": ("engine.py", '"pih_steps_total", "counter",', '"pih_steps_total", "",', "engine: metrics have a type and a value"),
        "two metrics of one name": ("engine.py", '"pih_steps_total", "counter",', '"pih_requests_total", "counter",', "engine: metrics have a type and a value"),
        "stop strings cut across pieces": ("answer.py", "keep = _held_back(self._held, self._request.stop)", "keep = 0", "engine: stop ids, stop strings and length end an answer"),
        "the end told twice": ("engine.py", "                sequence.deliver(piece)\n                if piece.finish:", "                sequence.deliver(piece)\n                if piece.finish:\n                    sequence.deliver(piece)", "engine: each request has its own answer, within the plan's limits"),
    },
    "surface": {
        "a model of its own": ("app.py", '"id": service.model,', '"id": "gpt",', "http: the model is listed"),
        "tokens not counted": ("shapes.py", '"completion_tokens": last.tokens,', '"completion_tokens": 0,', "http: whole answers"),
        "a stream without an end": ("generation.py", 'b"data: [DONE]\\n\\n"', 'b""', "http: streamed answers"),
        "errors as text": ("app.py", "            HTTPException: _http_error,\n", "", "http: errors are OpenAI's error objects"),
        "any model": ("app.py", "if model != service.model:", "if not model:", "http: errors are OpenAI's error objects"),
        "serves before it is ready": ("app.py", "    if not service.ready():", "    if service.ready() is None:", "http: not ready is 503"),
        "a draining engine is the client's fault": ("generation.py", "raise ApiError(503, str(problem)) from problem", "raise ApiError(400, str(problem)) from problem", "http: not ready is 503"),
        "a failure is an answer": ("generation.py", '    if piece.finish == "error":\n        raise', '    if piece.finish == "eror":\n        raise', "http: an engine's failure has its status, or ends the stream"),
        "computes for nobody": ("generation.py", "            cancel()\n", "            pass\n", "http: a client that leaves cancels its request"),
        "pages of others always fine": ("server.py", "status_code=reply.status, ", "", "http: pages that others add"),
        "any length": ("app.py", "asked.max_tokens or service.engine.context", "service.engine.context", "http: what is asked for reaches the engine, or is refused"),
        "answers that do not end": ("app.py", "stop_ids=service.text.stop_ids", "stop_ids=frozenset()", "http: what is asked for reaches the engine, or is refused"),
        "stops unheard": ("app.py", "stop=asked.stop,", "stop=(),", "http: what is asked for reaches the engine, or is refused"),
        "the first stop alone": ("app.py", "stop=asked.stop,", "stop=asked.stop[:1],", "http: what is asked for reaches the engine, or is refused"),
        "always the model's temperature": ("parameters.py", 'given(_number(rest, "temperature", 0, 2), "temperature", 1)', 'given(_number(rest, "temperature", 0, 2) and None, "temperature", 1)', "http: what is asked for reaches the engine, or is refused"),
        "temperature 0 is none given": ("parameters.py", "if value is None else value\n\n    top_k", "if not value else value\n\n    top_k", "http: what is asked for reaches the engine, or is refused"),
        "top_p unheard": ("parameters.py", 'given(_number(rest, "top_p", 0, 1), "top_p", 1)', 'given(_number(rest, "top_p", 0, 1) and None, "top_p", 1)', "http: what is asked for reaches the engine, or is refused"),
        "a seed of its own": ("parameters.py", "if seed is None else seed % (1 << 64)", "if True else 0", "http: what is asked for reaches the engine, or is refused"),
        "one seed for all": ("parameters.py", 'int.from_bytes(os.urandom(8), "little") if seed is None', "0 if seed is None", "http: who names no seed gets one of their own"),
        "penalties unheard": ("parameters.py", '"frequency_penalty": (0, 0.0)', '"frequency_penalty": (0, 0.0, 1.5)', "http: what is asked for reaches the engine, or is refused"),
        "one answer whatever n": ("parameters.py", '"n": (1,)', '"n": (1, 2)', "http: what is asked for reaches the engine, or is refused"),
        "goes on after stop": ("server.py", "        self._server.should_exit = True\n        self._thread.join()\n        self._loop.close()\n        if self._file is not None:\n            self._file.unlink(missing_ok=True)\n", "        pass\n", "http: after stop nobody is served"),
    },
    "health": {
        "memory taken at import": ("metrics.py", "\n\ndef ", "\n\nHELD = b'x' * (100 << 20)\n\n\ndef ", "memory: what is taken is what the plan asks for"),
        "dead until ready": ("__init__.py", 'return Reply(200, _TEXT, b"live\\n")', 'return Reply(200 if context.ready() else 503, _TEXT, b"live\\n")', "health: live whatever the rest"),
        "ready once and for all": ("__init__.py", "    def ready() -> Reply:\n", "    seen = []\n\n    def ready() -> Reply:\n        seen.extend([1] * context.ready())\n        if seen:\n            return Reply(200, _TEXT, b'')\n", "health: ready when the worker says so, and no more when it stops"),
        "labels not escaped": ("metrics.py", '.replace("\\n", "\\\\n")', "", "health: metrics in Prometheus's format"),
        "no types": ("metrics.py", '    yield f"# TYPE {name} {kind}"\n', "", "health: metrics in Prometheus's format"),
        "fallbacks unnamed": ("metrics.py", 'for name in lock["fallbacks"]]', "for name in ()]", "health: metrics in Prometheus's format"),
        "another media type": ("__init__.py", "text/plain; version=0.0.4", "text/html", "health: metrics in Prometheus's format"),
    },
    "model": {
        "keys never written": ("__init__.py", '        g.kv_write(g.rope(k, table, head_dim, pairs), v, "kv", layer)\n', "        g.rope(k, table, head_dim, pairs)\n", "lowering: a tiny checkpoint becomes a plan that runs"),
        "one cache for all layers": ("__init__.py", '"kv", layer, head_dim**-0.5)', '"kv", 0, head_dim**-0.5)', "lowering: each tensor counts"),
        "no attention": ("__init__.py", 'g.attention(at + "attended", g.rope(q, table, head_dim, pairs), "kv", layer, head_dim**-0.5)', "g.rope(q, table, head_dim, pairs)", "lowering: earlier tokens and their order count"),
        "another plan each time": ("__init__.py", 'Builder("llama", tensors)', 'Builder(f"llama{next(COUNT)}", tensors)', "lowering: the same again is the same plan"),
        "any context": ("__init__.py", 'whole(config, key) for key in ("hidden_size", "intermediate_size", "vocab_size")', 'config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")', "lowering: what is missing or of another shape is refused"),
        "left-over tensors": ("__init__.py", "    return g.finish(logits, frozenset({_HEAD}) if tied else frozenset())", "    return g.finish(logits, frozenset(tensors))", "lowering: what is missing or of another shape is refused"),
    },
}  # fmt: skip
TEXT = {
    "ids in another order": ("text.py", "[0].ids)", "[0].ids)[::-1]", "text: to ids and back"),
    "half characters": ("stream.py", "text.endswith(INCOMPLETE) and", "not text and", "text: a stream gives whole characters"),
    "cut at the limit": ("text.py", "        return self._ids(text)\n\n    def _ids", "        return self._ids(text)[:most]\n\n    def _ids", "text: the limit of ids"),
    "a template of its own": ("text.py", "self.template.render(messages, options)", '" ".join(m["content"] for m in messages)', "text: the chat template"),
    "a refusal swallowed": ("template.py", 'raise ValueError(f"the chat template refuses: {problem.message}") from problem', 'return ""', "text: the chat template"),
    "a tokenizer's own error": ("text.py", 'raise WorkerError(f"not a tokenizer: {problem}", where=str(path), fix="build the bundle again") from problem', "raise", "text: a damaged tokenizer is refused"),
}  # fmt: skip
EXTRA = {"another plan each time": "\n\nimport itertools\n\nCOUNT = itertools.count()\n"}
CASES = [(kind, sort) for kind, sorts in BROKEN.items() for sort in sorts]


def outcomes(folder):
    return {check.name: check for check in suite.check(folder, ROOT, bring)}


@pytest.mark.parametrize("kind", [kind for kind in new.KINDS if kind not in ("backend", "kernels")])
def test_a_new_plugin_of_each_kind_passes(kind, tmp_path):
    new.write(kind, "made", tmp_path / "made", ROOT)
    checks = outcomes(tmp_path / "made")
    text = (tmp_path / "made" / "plugin.toml").read_text()
    assert f'id = "{kind}/made"' in text
    assert text.count("[[tested]]") == 1
    skipped = {name for name, check in checks.items() if check.outcome == "skipped"}
    assert skipped <= {"lifecycle: platform.host cannot be had", "host: the cgroup's limit of memory"}
    assert [check for check in checks.values() if check.outcome == "failed"] == []
    assert len(checks) >= 8


def broken(folder, case, extra=""):
    file, old, text, failing = case
    (path,) = folder.glob(f"*/{file}")
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, text) + extra)
    check = found(folder, failing, bring)
    if check.outcome == "skipped":
        pytest.skip(check.detail)
    assert check.outcome == "failed"
    assert check.detail


@pytest.mark.parametrize(("kind", "sort"), CASES)
def test_a_broken_plugin_fails(kind, sort, tmp_path):
    new.write(kind, "made", tmp_path / "made", ROOT)
    broken(tmp_path / "made", BROKEN[kind][sort], EXTRA.get(sort, ""))


@pytest.mark.parametrize("sort", TEXT)
def test_broken_text_fails(sort, tmp_path, monkeypatch):
    monkeypatch.setitem(new._FROM, "model", "plugins/model/text")
    new.write("model", "made", tmp_path / "made", ROOT)
    broken(tmp_path / "made", TEXT[sort])


def test_a_decoder_of_another_shape_brings_an_example(tmp_path):
    """Without one it is skipped, with a wrong one it fails."""
    new.write("model", "made", tmp_path / "made", ROOT)
    path = tmp_path / "made" / "pih_model_made" / "__init__.py"
    path.write_text(path.read_text().replace('"rms_norm_eps"', '"norm_eps"'))
    name = "lowering: a tiny checkpoint becomes a plan that runs"
    without = found(tmp_path / "made", name, bring)
    assert (without.outcome, "conformance.json" in without.detail) == ("skipped", True)
    example = tmp_path / "made" / "conformance.json"
    example.write_text(json.dumps({"config": {"vocab_size": 48}, "tensors": {}}))
    assert "its own conformance.json is refused" in found(tmp_path / "made", name, bring).detail


def test_what_needs_another_s_capability_is_skipped_with_the_reason(tmp_path):
    new.write("health", "made", tmp_path / "made", ROOT)
    path = tmp_path / "made" / "plugin.toml"
    path.write_text(path.read_text().replace("[requires]", '[requires]\n"acme.fabric" = ">=1.0"'))
    check = found(tmp_path / "made", "lifecycle")
    assert check.outcome == "skipped"
    assert "acme.fabric" in check.detail


def test_wheels_come_from_the_pins_where_the_interpreter_has_none(tmp_path):
    """./pih runs in an environment of its own, without a surface's wheels."""
    pih("plugin", "new", "--kind", "surface", "made", "--output", tmp_path / "made")
    assert "checks passed, 0 skipped" in pih("plugin", "check", tmp_path / "made").stdout


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ("backend/cuda", "it requires kernels.cubin, for which the suite has no stand-in"),
        ("backend/cuda-graphs", "it provides backend.graphs, which is tried with the backend that uses it"),
        ("transport/nccl", "it loads nvidia/nccl/lib/libnccl.so.2, which a build takes out of its wheel"),
    ],
)
def test_what_needs_a_device_of_its_own_is_skipped_with_the_reason(plugin, reason):
    found = list(suite.check(ROOT / "plugins" / plugin, ROOT, bring))
    assert [(check.name, check.outcome) for check in found] == [
        ("manifest", "passed"), ("package", "passed"), ("lifecycle", "skipped")
    ]  # fmt: skip
    assert found[-1].detail == reason

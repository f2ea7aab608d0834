# ruff: noqa: E501 - what is broken reads best in one line
"""The suite passes what keeps its contract, and fails each sort of plugin that does not."""

import pytest

from tests.conformance.checks import PACKAGE, START, found, outcomes

# What is broken: (file, what it says, what it says then), and the check that must fail.
BROKEN = {
    "another core": ("plugin.toml", 'pih = ">=', 'pih = ">9.', "package"),
    "another ABI": ("plugin.toml", "abi = 1\nsummary", "abi = 2\nsummary", "package"),
    "unknown op in the report": ("plugin.toml", 'op = "silu_mul"', 'op = "silu"', "manifest"),
    "unknown key": ("plugin.toml", "summary =", "sumary =", "manifest"),
    "a source that is not there": ("plugin.toml", 'source = "ops.py"\ntemplate = "gather"', 'source = "shards.py"\ntemplate = "gather"', "package"),
    "a source of another's": ("plugin.toml", 'source = "ops.py"', 'source = "../../../etc/passwd"', "manifest"),
    "no source": ("plugin.toml", 'source = "ops.py"', 'source = ""', "manifest"),
    "no entry": ("plugin.toml", f'"{PACKAGE}:start"', f'"{PACKAGE}:begin"', "manifest"),
    "no memory of its own": ("plugin.toml", "host_bytes = 8000000", "host_bytes = 0", "package"),
    "a wheel that is not named": ("ops.py", "import math\n", "import math\n\nimport numpy\n", "package"),
    "another plugin's code": ("ops.py", "import math\n", "import math\n\nimport pih_backend_cpu\n", "package"),
    "not Python": ("batch.py", "@dataclass", "@@dataclass", "package"),
    "asks for what it does not require": (
        "__init__.py", START, f'    context.provider("memory.pages")\n{START}', "lifecycle: start and stop"
    ),
    "a thread is left": (
        "__init__.py", START, f"    import threading, time\n    threading.Thread(target=lambda: time.sleep(60), daemon=True).start()\n{START}",
        "lifecycle: start and stop",
    ),
    "a thread is left by the import": (
        "__init__.py", "\n\ndef start(", "\n\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\n\ndef start(",
        "lifecycle: start and stop",
    ),
    "a thread without a name is left by the import": (
        "__init__.py", "\n\ndef start(", "\n\nimport _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n\n\ndef start(", "lifecycle: start and stop",
    ),
    "a thread is left by the first start alone": (
        "__init__.py", START, f"    import threading, time\n    global LATE\n    if 'LATE' not in globals():\n        LATE = threading.Thread(target=time.sleep, args=(60,), daemon=True)\n        LATE.start()\n{START}",
        "lifecycle: start and stop",
    ),
    "a thread is left by each step": (
        "backend.py", "        self._tickets += 1\n", "        self._tickets += 1\n        import threading, time\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
        "lifecycle: use leaves nothing behind",
    ),
    "a process is left": ("__init__.py", START, f"    import subprocess\n    subprocess.Popen(['sleep', '333'])\n{START}", "lifecycle: start and stop"),
    "a process is left by the import": ("__init__.py", "\n\ndef start(", "\n\n__import__('subprocess').Popen(['sleep', '333'])\n\n\ndef start(", "lifecycle: start and stop"),
    "a process is left that has ended": ("__init__.py", START, f"    import os\n    if not os.fork():\n        os._exit(0)\n{START}", "lifecycle: start and stop"),
    "a process is left that hides": (
        "__init__.py", START, f"    import os\n    if not (child := os.fork()):\n        os.setsid()\n        if os.fork():\n            os._exit(0)\n        os.execve('/bin/sleep', ['sleep', '333'], {{}})\n    os.waitpid(child, 0)\n{START}",
        "lifecycle: start and stop",
    ),
    "a process is left by a failed start": (
        "backend.py", "        self.plan = plan\n", "        self.plan = plan\n        import subprocess\n        self.child = subprocess.Popen(['sleep', '333'])\n", "lifecycle: tensor 1 cannot be had",
    ),
    "a process is left by each step": (
        "backend.py", "        self._tickets += 1\n", "        self._tickets += 1\n        import subprocess\n        subprocess.Popen(['sleep', '333'])\n",
        "lifecycle: use leaves nothing behind",
    ),
    "a process is left at the end": ("__init__.py", START, f"    __import__('atexit').register(__import__('subprocess').Popen, ['sleep', '333'])\n{START}", "end of the process"),
    "a signal is taken": ("__init__.py", START, f"    __import__('signal').signal(__import__('signal').SIGTERM, lambda *_: None)\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "a signal is taken by the import": ("__init__.py", "\n\ndef start(", "\n\n__import__('signal').signal(2, lambda *_: None)\n\n\ndef start(", "lifecycle: signals, folder and umask are the worker's"),
    "another folder": ("__init__.py", START, f"    __import__('os').chdir('/')\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "another umask": ("__init__.py", START, f"    __import__('os').umask(0o77)\n{START}", "lifecycle: signals, folder and umask are the worker's"),
    "a file is left": ("__init__.py", START, f"    global F\n    F = [*globals().get('F', []), open('/dev/null')]\n{START}", "lifecycle: start and stop"),
    "a thread is left by a failed start": (
        "backend.py", "        self.plan = plan\n",
        "        self.plan = plan\n        import threading\n        self.end = threading.Event()\n        threading.Thread(target=self.end.wait, daemon=True).start()\n",
        "lifecycle: tensor 1 cannot be had",
    ),
    "a second stop fails": ("backend.py", "        self._weights.clear()\n", "        del self._weights\n", "lifecycle: stop twice"),
    "one at a time": (
        "__init__.py", START, f"    global BUSY\n    if globals().get('BUSY'):\n        raise WorkerError('busy')\n    BUSY = True\n{START}",
        "lifecycle: two at once",
    ),
    "a failure swallowed": (
        "backend.py", "weights.tensor(weight.name))", "_given(weights, weight))", "lifecycle: tensor 1 cannot be had"
    ),
    "a failure renamed": ("__init__.py", '    context.provider("platform.host")', '    try:\n        context.provider("platform.host")\n    except WorkerError:\n        raise KeyError("host") from None', "lifecycle: platform.host cannot be had"),
    "a damaged plan": ("__init__.py", "    plan = plans.read(", "    __import__('json').loads((context.root / plans.NAME).read_bytes())\n    plan = plans.read(", "lifecycle: a damaged plan"),
    "a method lacks": ("backend.py", "def logits(", "def scores(", "contract: what it provides"),
    "memory is kept": (
        "backend.py", "        self._sampled = [-1]", "        KEPT.append(self._caches.copy())\n        self._sampled = [-1]",
        "memory: what is taken is what the plan asks for",
    ),
    "more memory than it says": (
        "backend.py", "        self._sampled = [-1]", "        self.more = b'x' * (200 << 20)\n        self._sampled = [-1]",
        "memory: what is taken is what the plan asks for",
    ),
    "memory taken at import": ("__init__.py", "\n\ndef start(", "\n\nHELD = b'x' * (100 << 20)\n\n\ndef start(", "memory: what is taken is what the plan asks for"),
    "memory taken at the first start": (
        "__init__.py", START, f"    global HELD\n    HELD = globals().get('HELD') or b'x' * (100 << 20)\n{START}",
        "memory: what is taken is what the plan asks for",
    ),
    "limits not checked": ("batch.py", '_within("positions", step.positions, 0, limits.context)', "", "limits: a bad step is an error"),
    "a page table of any width": ("batch.py", '_within("pages_per_seq", (step.pages_per_seq,)', '_within("pages_per_seq", ()', "limits: a bad step is an error"),
    "a ticket that stays good": ("backend.py", "return self._results.pop(ticket)", "return self._results.get(ticket)", "limits: a ticket is good once"),
    "anything is a ticket": ("backend.py", "        if not isinstance(ticket, int) or ticket not in self._results:\n", "        if ticket is None:\n            return []\n        if ticket not in self._results:\n", "limits: a ticket is good once"),
    "three steps in flight": ("backend.py", "if len(self._results) >= MOST_IN_FLIGHT:", "if False:", "limits: at most two steps are in flight"),
    "a third step ends the others": ("backend.py", '            raise WorkerError(f"{MOST_IN_FLIGHT} steps', '            self._results.clear()\n            raise WorkerError(f"{MOST_IN_FLIGHT} steps', "limits: at most two steps are in flight"),
    "a step after stop": (
        "backend.py", '        if self._stopped:\n            raise WorkerError("the backend has stopped")\n', "        if self._stopped:\n            self._results[0] = []\n            return 0\n",
        "limits: after stop nothing runs",
    ),
    "logits after stop": ("backend.py", '        self._arena = memoryview(b"")\n        self._logits = []\n', '        self._arena = memoryview(b"")\n', "limits: after stop nothing runs"),
    "one memory of last ids for all": (
        "backend.py", "        self._sampled = [-1] * plan.limits.seqs\n", "        self._sampled = globals().setdefault('SAMPLED', [-1] * plan.limits.seqs)\n", "limits: two backends keep to themselves"
    ),
    "the largest row lost": ("ops.py", "row[:] = table[token]", "row[:] = table[min(token, 18)]", "op: embed f32 [20,20]"),
    "eps forgotten": ("ops.py", ' + attrs["eps"])', " + 1e-30)", "op: rms_norm f32 20 columns, 1 groups"),
    "one group for all": ("ops.py", "range(0, len(source), size)", "range(0, size, size)", "op: rms_norm f32 64 columns, 4 groups"),
    "accumulate ignored": ("ops.py", 'if attrs["accumulate"]', "if not attrs", "op: linear f32 [32,96] accumulate"),
    "less precise than it says": (
        "ops.py", "sum(map(mul, own, row)) for row in weight", "round(sum(map(mul, own, row)), 2) for row in weight",
        "op: linear f32 [48,32]",
    ),
    "pairs swapped": ("ops.py", '== "half"', '!= "half"', "op: rope 64 columns, heads of 16, half"),
    "angles of another position": ("ops.py", "position * frequency", "(position + 1) * frequency", "op: rope_table f32 32 columns"),
    "the first layer's cache": ("memory.py", "(self.layer * 2 + side)", "(0 * 2 + 0)", "op: attention 2 heads, 1 kv heads of 16, cache f32"),
    "bf16 cut, not rounded": ("memory.py", "bit + 0x7FFF + (bit >> 16 & 1) >> 16", "bit >> 16", "op: kv_write 4 heads, 2 kv heads of 16, cache bf16"),
    "sees the future": ("ops.py", "range(step.positions[token] + 1)]", "range(step.positions[stop - 1] + 1)]", "op: attention 2 heads, 1 kv heads of 16, cache f32"),
    "overflow": ("ops.py", " if value > -700 else 0.0", "", "op: silu_mul 20 columns"),
    "rows in order": ("ops.py", "target[:] = x[row]", "target[:] = x[0]", "op: gather 20 columns"),
    "seed ignored": ("ops.py", "uniform(how.seed, position)", "uniform(0, position)", "op: sample 32 logits"),
    "min_p ignored": ("ops.py", "if weight >= how.min_p * weights[0]", "", "op: sample 96 logits"),
    "company counts": ("ops.py", 'attrs["scale"] * sum', 'attrs["scale"] * (1 + 1e-6 * len(q)) * sum', "op: rows do not depend on their company"),
    "a crash": ("ops.py", "        row[:] = table[token]", "        import os\n        os.abort()", "limits: a bad step is an error"),
    "leaves quietly": ("__init__.py", START, f"    import os\n    os._exit(0)\n{START}", "lifecycle: start and stop"),
    "leaves quietly at import": ("__init__.py", "\n\ndef start(", "\n\n__import__('os')._exit(0)\n\n\ndef start(", "lifecycle: start and stop"),
    "leaves quietly in a step": ("ops.py", "        row[:] = table[token]", "        __import__('os')._exit(0)", "limits: a bad step is an error"),
    "leaves quietly at the end": ("__init__.py", START, f"    __import__('atexit').register(__import__('os')._exit, 3)\n{START}", "end of the process"),
    "answers for the suite": ("__init__.py", START, f"    import os\n    for pipe in os.listdir('/proc/self/fd'):\n        if int(pipe) > 2:\n            os.write(int(pipe), b'x' * (2 << 20))\n{START}", "lifecycle: start and stop"),
    "a report of what it cannot do": ("ops.py", '    "silu_mul": silu_mul,\n', "", "op: silu_mul 20 columns"),
}  # fmt: skip
EXTRA = {
    "a failure swallowed": "\n\ndef _given(weights, weight):\n    try:\n        return weights.tensor(weight.name)\n"
    "    except Exception:\n        return memoryview(bytes(weight.nbytes))\n",
    "memory is kept": "\n\nKEPT = []\n",
}


def test_a_new_plugin_passes(made):
    checks = outcomes(made)
    assert {check.outcome for check in checks.values()} == {"passed"}, checks
    assert len(checks) > 40


@pytest.mark.parametrize("sort", BROKEN)
def test_a_broken_plugin_fails(made, sort):
    file, old, text, failing = BROKEN[sort]
    path = made / file if file == "plugin.toml" else made / PACKAGE / file
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, text) + EXTRA.get(sort, ""))
    check = found(made, failing)
    assert check.outcome == "failed"
    assert check.detail

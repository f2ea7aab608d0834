"""Starts a bundle's plugins up to its backend and stops them, once for each of many faults, with the bundle's Python.

    starting.py ROOT/pih    stdin: a list of values of PIH_SIMGPU; stdout: what came of each

Each in a process of its own, since a driver reads its settings once.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "lib"))
from pih_runtime import lock, microkernel
from pih_runtime.errors import PihError


def outcome(plugins):
    """error: why the start failed, '' where it did not; code: its exit code; stopping: errors of the end."""
    surroundings = microkernel.Surroundings(ROOT, "", lambda _line: None, lambda: False, lambda _problem: None)
    started, error, code = [], "", 0
    try:
        for item in microkernel.start(plugins, surroundings):
            started.append(item)  # noqa: PERF402 - what was started before the failure counts
    except PihError as problem:
        error, code = str(problem), problem.exit_code
    return {"error": error, "code": code, "stopping": microkernel.stop(started)}


def in_a_process(plugins, settings):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.environ["PIH_SIMGPU"] = settings
        os.write(writer, json.dumps(outcome(plugins)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    _, status = os.wait()
    return json.loads(text) if status == 0 else {"error": f"killed: {status}", "code": -1, "stopping": []}


deployment = lock.read(ROOT / "lock.json")
last = [plugin.id for plugin in deployment.plugins].index("backend/cuda")
some = replace(deployment, plugins=deployment.plugins[: last + 1])
print(json.dumps([in_a_process(some, settings) for settings in json.load(sys.stdin)]))

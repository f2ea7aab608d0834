"""A worker's life: start, signals, failures, and what is left behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest

from pih_runtime.worker import DRAIN_SECONDS, STOP_SECONDS
from tests.integration.worker.toy_bundle import PLUGINS, command, errors, run, write_bundle
from tests.support.waiting import PATIENCE, until

ENDLESS = {"backend/toy": {"seconds": 0.2}}  # a whole answer of 250 tokens takes 50 s
IMPORTS = "import uvicorn.protocols.http.h11_impl, starlette.requests, tokenizers, jinja2.sandbox"
FAILING = """
class Provider:
    def stop(self):
        raise RuntimeError("it would not stop")
def start(context):
    {body}
"""


def write_plugin(folder, body):
    """A plugin that starts last, as a real package."""
    place = folder / "late"
    (place / "fake_late").mkdir(parents=True)
    (place / "fake_late/__init__.py").write_text(FAILING.format(body=body))
    (place / "plugin.toml").write_text(
        'id = "health/late"\nversion = "1"\nkind = "health"\nabi = 1\n[provides]\n"health.late" = "1.0"\n'
        '[requires]\n"surface.http" = ">=1"\n[runtime]\npackage = "fake_late"\nentry = "fake_late:start"\n'
        'wheels = []\nhost_bytes = 0\n[permissions]\nnetwork = "none"\ndevices = []\npaths = []\n'
    )
    return place


def test_the_log_says_what_runs(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, fallbacks=["linear bf16: scalar reference"]))
    worker.wait_for("ready in")
    text = "\n".join(worker.lines)
    assert "bundle toy, lock sha256:" in text
    assert "execution/continuous=0.1.0" in text
    assert "budget in bytes weights=256" in text
    assert "fallback linear bf16: scalar reference" in text
    assert 'pih_fallback_info{fallback="linear bf16: scalar reference"} 1' in worker.get("/metrics").text
    assert worker.end()[0] == 0


def test_start_is_quick_and_small(tmp_path, launch):
    """In a few times what its imports alone take here and now: two seconds where those take two thirds of one."""
    folder = write_bundle(tmp_path)
    worker, starts, imports = None, [], []
    for turn in range(9):  # whatever else this machine does, one of them is not disturbed
        began = time.monotonic()
        subprocess.run([sys.executable, "-I", "-B", "-c", IMPORTS], check=True)
        imports.append(time.monotonic() - began)
        began = time.monotonic()
        worker = launch(folder)
        worker.wait_for("ready in")
        starts.append(time.monotonic() - began)
        if turn >= 2 and min(starts) < 3 * min(imports):
            break
    assert min(starts) < 3 * min(imports)
    assert worker.status("VmRSS") < 60_000
    assert worker.status("Threads") <= 4


def test_memory_stays_where_it_is_after_many_requests(tmp_path, launch):
    worker = launch(write_bundle(tmp_path))
    worker.wait_for("ready in")

    def ask(times):
        for n in range(times):
            body = {"model": "toy", "prompt": f"{n} and on", "max_tokens": 40, "stream": bool(n % 2)}
            assert worker.post("/v1/completions", json=body).status_code == 200

    ask(60)
    before = worker.status("VmRSS")
    ask(120)
    assert worker.status("VmRSS") < before + 4000


def test_a_unix_socket_serves_and_is_taken_away(tmp_path, launch):
    folder, path = write_bundle(tmp_path / "b"), tmp_path / "worker.sock"
    for number in (signal.SIGKILL, signal.SIGTERM):  # the second finds the file that the first left
        worker = launch(folder, f"unix:{path}")
        worker.wait_for("ready in")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://worker") as client:
            assert client.get("/v1/models").json()["data"][0]["id"] == "toy"
        if number == signal.SIGTERM:
            code, text = run(folder, "--listen", f"unix:{path}")
            assert (code, "Address already in use" in text) == (9, True)
        worker.end(number)
        assert path.exists() == (number == signal.SIGKILL)


def test_an_address_in_use_is_a_clear_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        code, text = run(write_bundle(tmp_path), "--listen", where)
    assert code == 9
    (line,) = errors(text)
    assert where in line
    assert "Address already in use" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "1"], "--port 1"),
        (["--listen"], "--listen"),
        (["--listen", "x"], "x"),
        (["a"], "'a'"),
        *(
            (["--listen", where], where)
            for where in ("127.0.0.1:65536", "127.0.0.1:99999", "h:", "h:+80", "h:-1", "unix:")
        ),
    ],
)
def test_wrong_arguments_are_usage_errors(tmp_path, arguments, words):
    code, text = run(write_bundle(tmp_path), *arguments)
    assert code == 2
    assert words in errors(text)[0]
    assert "pih-worker --help" in text


def test_help_needs_no_bundle(tmp_path):
    folder = write_bundle(tmp_path)
    (folder / "pih/lock.json").unlink()
    done = subprocess.run(command(folder, "--help"), check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert "pih-worker --listen 127.0.0.1:8000" in done.stdout


def test_a_failure_at_the_last_start_stops_all_others_and_reports_every_release_error(tmp_path):
    late = write_plugin(tmp_path, "raise OSError('no room')")
    code, text = run(write_bundle(tmp_path / "b", plugins=(*PLUGINS, late)), "--listen", f"unix:{tmp_path}/s")
    assert code == 9
    assert "plugin health/late: failed to start: OSError: no room (__init__.py:" in errors(text)[0]
    assert not (tmp_path / "s").exists()


def test_a_failing_release_is_an_error_of_its_own(tmp_path, launch):
    late = write_plugin(tmp_path, "return Provider()")
    worker = launch(write_bundle(tmp_path / "b", plugins=(*PLUGINS, late)), f"unix:{tmp_path}/s")
    worker.wait_for("ready in")
    code, text = worker.end()
    assert code == 9
    assert "while stopping: plugin health/late failed to stop: RuntimeError: it would not stop" in text
    assert not (tmp_path / "s").exists()


def test_a_plugin_that_never_stops_does_not_keep_the_worker(tmp_path, launch):
    """As one that waits inside of a driver does: no signal is heard there."""
    late = write_plugin(
        tmp_path,
        "import ctypes; lock, held = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)\n"
        "    lock(held); Provider.stop = lambda _: (context.log('waits'), lock(held)); return Provider()",
    )
    for signals in (1, 2):
        folder = tmp_path / str(signals)
        worker = launch(write_bundle(folder, plugins=(*PLUGINS, late)), f"unix:{tmp_path}/s")
        worker.wait_for("ready in")
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        if signals == 2:
            worker.wait_for("waits")
            time.sleep(1.1)  # signals within a second are one wish
            worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(PATIENCE) == 9
        assert (time.monotonic() - began < STOP_SECONDS) == (signals == 2)
        assert "error: a plugin does not stop: the worker ends without it" in worker.end()[1]


def test_a_plugin_may_end_the_worker_from_any_thread(tmp_path):
    fail = "threading.Timer(0.5, context.fail, [RuntimeError('lost the device')]).start()"
    body = f"import threading; {fail}; return Provider()"
    late = write_plugin(tmp_path, body)
    code, text = run(write_bundle(tmp_path / "b", plugins=(*PLUGINS, late)), "--listen", f"unix:{tmp_path}/s")
    assert code == 9
    assert "error: RuntimeError: lost the device\n  while stopping: plugin health/late failed to stop" in text


def test_a_backend_error_answers_open_requests_and_ends_the_worker(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, settings={"backend/toy": {"fail_with": 2, **ENDLESS["backend/toy"]}}))
    worker.wait_for("ready in")
    client = worker.client()
    stream = client.completions.create(model="toy", prompt="a", max_tokens=250, stream=True)
    next(iter(stream))
    whole = []
    asking = threading.Thread(
        target=lambda: whole.append(worker.post("/v1/completions", json={"model": "toy", "prompt": "b"}))
    )
    asking.start()
    with pytest.raises(openai.APIError, match="the toy broke, as told"):
        list(stream)
    asking.join()
    assert whole[0].status_code == 500
    assert "the toy broke, as told" in whole[0].json()["error"]["message"]
    code, text = worker.end()
    assert code == 9
    assert "the toy broke, as told" in errors(text)[0]


def test_a_client_that_leaves_ends_its_request(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, settings=ENDLESS))
    worker.wait_for("ready in")
    for stream in (True, False):
        body = json.dumps({"model": "toy", "prompt": "a", "max_tokens": 250, "stream": stream}).encode()
        host, port = worker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            head = ("POST /v1/completions HTTP/1.1", "host: x", "content-type: application/json")
            head = "\r\n".join((*head, f"content-length: {len(body)}", "", ""))
            connection.sendall(head.encode() + body)
            until(lambda: worker.metrics()["pih_requests_running"] == 1)
        until(lambda: worker.metrics()["pih_requests_running"] == 0)
    until(lambda: not worker.pages_in_use())
    assert worker.metrics()["pih_generated_tokens_total"] < 250  # two whole answers have 500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_lets_running_answers_end_and_refuses_new_ones(tmp_path, launch, number):
    gate = tmp_path / "gate"
    worker = launch(write_bundle(tmp_path / "b", settings={"backend/toy": {"gate": str(gate)}}))
    worker.wait_for("ready in")
    stream = worker.client().completions.create(model="toy", prompt="a", max_tokens=60, stream=True)
    pieces = iter(stream)
    next(pieces)
    worker.process.send_signal(number)
    worker.wait_for("stopping:")
    assert worker.get("/health/ready").status_code == 503
    assert worker.get("/health/live").status_code == 200
    refused = worker.post("/v1/completions", json={"model": "toy", "prompt": "b"})
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    gate.touch()
    assert list(pieces)[-1].choices[0].finish_reason == "length"
    code, text = worker.end()
    assert code == 0
    assert text.endswith("pih-worker: stopped\n<end>")


def test_a_second_signal_ends_running_answers_now_with_a_word(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, settings=ENDLESS))
    worker.wait_for("ready in")
    stream = worker.client().completions.create(model="toy", prompt="a", max_tokens=250, stream=True)
    next(iter(stream))
    began = time.monotonic()
    worker.process.send_signal(signal.SIGINT)
    worker.wait_for("stopping:")
    worker.process.send_signal(signal.SIGINT)
    with pytest.raises(openai.APIError, match="the worker is stopping"):
        list(stream)
    assert worker.end()[0] == 0
    assert time.monotonic() - began < DRAIN_SECONDS  # after which one signal ends them too


def test_a_signal_during_start_ends_it_in_order(tmp_path, launch):
    gate = tmp_path / "gate"
    body = f"import os, time\n    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    late = write_plugin(tmp_path, f"{body}    return type('P', (), {{}})()")
    worker = launch(write_bundle(tmp_path / "b", plugins=(*PLUGINS, late)), f"unix:{tmp_path}/s")
    worker.wait_for("listening on")
    with httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/s"), base_url="http://worker") as client:
        assert client.get("/v1/models").status_code == 200
        assert client.post("/v1/completions", json={"model": "toy", "prompt": "a"}).status_code == 503
    worker.process.send_signal(signal.SIGTERM)
    gate.touch()
    code, text = worker.process.wait(PATIENCE), "\n".join(worker.lines)
    assert code == 0
    assert "ready in" not in text
    assert not Path(f"{tmp_path}/s").exists()


def test_as_pid_1_it_obeys_sigterm(tmp_path):
    folder = write_bundle(tmp_path)
    isolate = ["unshare", "--pid", "--fork", "--kill-child"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*isolate, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine gives no PID namespace")
    process = subprocess.Popen(
        [*isolate, *command(folder, "--listen", "127.0.0.1:0")], stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "ready in" in line:
            break
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    assert Path(f"/proc/{child}/status").read_text().split("NSpid:")[1].split()[1] == "1"
    os.kill(child, signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.stderr.close()

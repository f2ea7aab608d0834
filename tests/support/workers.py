"""Workers as processes of their own, asked over real HTTP."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import httpx
import openai

from tests.support.waiting import PATIENCE, cpu_seconds


class Worker:
    """A worker process; its log lines arrive as they are written."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._told:
                self.lines.append(line.rstrip())
                self._told.notify_all()
        with self._told:
            self.lines.append("<end>")
            self._told.notify_all()

    def wait_for(self, words):
        """The first log line with these words."""
        with self._told:
            told = self._told.wait_for(
                lambda: any(words in line for line in self.lines) or "<end>" in self.lines, PATIENCE
            )
        found = [line for line in self.lines if words in line]
        assert told, f"no {words!r} within {PATIENCE:g} s: {self.lines}"
        assert found, f"ended without {words!r}: {self.lines}"
        return found[0]

    @property
    def url(self):
        return self.wait_for("listening on ").partition("listening on ")[2]

    def client(self):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)

    def get(self, path):
        return httpx.get(self.url + path, timeout=PATIENCE)

    def post(self, path, **more):
        return httpx.post(self.url + path, timeout=PATIENCE, **more)

    def metrics(self):
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def pages_in_use(self):
        """Cache pages that a request holds; one that has ended gives its own back just after its last piece."""
        values = self.metrics()
        return values["pih_kv_pages"] - values["pih_kv_pages_free"]

    def status(self, key):
        """A number of kB from /proc/PID/status."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))

    def cpu_seconds(self):
        """What it has taken of the processor."""
        return cpu_seconds(self.process.pid)

    def end(self, number=signal.SIGTERM):
        """Send a signal; the exit code and everything it said."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code, "\n".join(self.lines)

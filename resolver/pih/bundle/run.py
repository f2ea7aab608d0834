"""Starting the worker of a bundle: from its unpacked files, or by a container engine.

Here, a worker is reached in one of two ways: through a socket in a private folder (`pih run`; it then has no
network at all), or on a host's port (`pih serve`).
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import attrs

from pih.bundle import driver, permissions
from pih.bundle.layout import Layout
from pih.bundle.permissions import Grants
from pih_runtime.errors import SealError, WorkerError

WEIGHTS_FILE = "/pih/weights/weights.safetensors"
DIGESTS_FILE = "/pih/weights/weights.digests"
# /tmp is the one folder that every sandbox makes writable.
INNER_FOLDER = "/tmp/pih"  # noqa: S108 - inside the sandbox
SOCKET = "worker.sock"
_LOG = "worker.log"
_LONGEST_SOCKET = 107  # sun_path
_GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}  # images name processors as Go does
_STOP_SECONDS = 12.0  # the worker gives running requests 8


@attrs.frozen
class Private:
    """A socket in this folder, which is the caller's own; the worker's log goes beside it."""

    folder: Path

    @property
    def address(self) -> str:
        """Where a client on the host finds the worker."""
        return f"unix:{self.folder / SOCKET}"


@attrs.frozen
class Public:
    """A port of the host; the worker's log goes to stderr."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """Where a client finds the worker, as a URL has it: an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Listen = Private | Public


@attrs.frozen
class Running:
    """A started worker. address: for `client`. terminate: ask it to stop. remove: end what is left of it.

    refused: what to do where its engine ends without having started it, '' where nothing is known.
    """

    address: str
    process: subprocess.Popen[bytes]
    log: Path | None
    terminate: Callable[[], None]
    remove: Callable[[], None]
    refused: str = ""

    def alive(self) -> bool:
        """Whether the worker still runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last lines of the worker's log where it was not on stderr."""
        if self.log is None:
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-5:])

    def stop(self) -> int:
        """End the worker, gently first; returns its exit code."""
        if self.alive():
            self.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.remove()
        return self.process.wait()


@contextmanager
def private_folder() -> Iterator[Private]:
    """A folder for a worker's socket that no other user can enter."""
    base = os.environ.get("XDG_RUNTIME_DIR") or None
    with tempfile.TemporaryDirectory(prefix="pih-", dir=base) as outer:
        # The worker may have another user id in its container: it must be able to write here, nobody else gets here.
        folder = Path(outer, "s")
        folder.mkdir()
        folder.chmod(0o777)
        if len(str(folder / SOCKET)) > _LONGEST_SOCKET:
            raise WorkerError(
                "the path of the socket is too long", where=str(folder), fix="set TMPDIR to a shorter path"
            )
        yield Private(folder)


def digests_of(weights: Path) -> Path:
    """Where the chunk table of a packed weights file lies: beside it, x.safetensors and x.digests."""
    return weights.with_suffix(".digests")


def mounts(weights: Path | None) -> list[tuple[Path, str]]:
    """(file of the host, its place in the image) of weights that are delivered apart, with their table if it is there.

    Whether the worker can do without the table is for its lock to say.
    """
    if weights is None:
        return []
    table = digests_of(weights)
    return [(weights, WEIGHTS_FILE), *([(table, DIGESTS_FILE)] if table.is_file() else [])]


def check_host(image: Layout) -> None:
    """Raises WorkerError where this machine cannot run the image's code."""
    wanted = f"{image.config.get('os')}/{image.config.get('architecture')}"
    here = f"{platform.system().lower()}/{_GO_NAMES.get(platform.machine(), platform.machine())}"
    if wanted != here:
        raise WorkerError(
            f"the image is for {wanted}, this host is {here}",
            fix="build for this host, or run it on the host that it was built for",
        )


def granted(image: Layout, listen: Listen) -> Grants:
    """What the image's lock lets its worker reach; raises WorkerError for a port where no plugin may listen.

    And for a driver that is older than the lock's.
    """
    grants = permissions.of_image(image)
    if isinstance(listen, Public) and not grants.listen:
        raise WorkerError("no plugin of the bundle may listen on a port", fix="pih run, which needs none")
    check_variables(image, grants.environment)
    driver.check(grants.families, grants.driver)
    return grants


def check_variables(image: Layout, names: Collection[str]) -> None:
    """Raises SealError for a variable of the host that the image sets itself."""
    if clash := sorted(environment_of(image).keys() & set(names)):
        raise SealError(
            f"a plugin asks for {clash[0]}, which the image sets itself",
            where=str(image.path),
            fix="leave the plugin out, or have its author ask for less",
        )


def arguments_of(image: Layout) -> list[str]:
    """The image's entry point."""
    entry = _settings(image).get("Entrypoint")
    if not isinstance(entry, list) or not entry or not all(isinstance(item, str) for item in entry):
        raise WorkerError("the image has no entry point", where=str(image.path), fix="build the bundle again")
    return entry


def environment_of(image: Layout) -> dict[str, str]:
    """The environment that the image gives its worker."""
    listed = _settings(image).get("Env")
    pairs = [item.partition("=") for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    return {name: value for name, _, value in pairs}


def spawn(
    command: list[str], listen: Listen, environment: dict[str, str] | None = None, pass_fds: tuple[int, ...] = ()
) -> tuple[subprocess.Popen[bytes], Path | None]:
    """Start a process that Ctrl-C does not reach: the caller stops it. Its log goes where `listen` says."""
    log = listen.folder / _LOG if isinstance(listen, Private) else None
    with log.open("wb") if log else nullcontext() as file:
        output = file or sys.stderr.fileno()
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    return process, log


def signal_process(process: subprocess.Popen[bytes], number: signal.Signals) -> Callable[[], None]:
    """A function that signals the process, if it is still there."""
    return lambda: process.send_signal(number)


def _settings(image: Layout) -> dict[str, object]:
    found = image.config.get("config")
    return found if isinstance(found, dict) else {}

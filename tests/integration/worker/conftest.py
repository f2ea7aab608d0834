"""Workers of hand-written bundles."""

from collections.abc import Iterator

import pytest

from tests.integration.worker.toy_bundle import command, write_bundle
from tests.support.workers import Worker


@pytest.fixture
def launch() -> Iterator:
    """Starts workers and ends them."""
    workers = []

    def started(folder, listen="127.0.0.1:0"):
        workers.append(Worker(command(folder, "--listen", listen)))
        return workers[-1]

    yield started
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One worker for tests that only ask."""
    worker = Worker(command(write_bundle(tmp_path_factory.mktemp("shared")), "--listen", "127.0.0.1:0"))
    worker.wait_for("ready in")
    yield worker
    worker.process.kill()
    worker.process.wait()

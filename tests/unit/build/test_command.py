"""Running a package manager's client: its words, its progress, its end."""

import os
import sys
from pathlib import Path

import pytest

from pih.build import command
from pih_runtime.errors import FetchError


def run(folder, script, advanced=lambda _: None):
    return command.run(
        "client", [sys.executable, "-c", script], folder, os.environ, missing="install it", advanced=advanced
    )


def test_what_it_prints(tmp_path):
    assert run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)") == "out\n"


def test_its_last_lines_where_it_fails(tmp_path):
    script = "import sys; [print('line', i, file=sys.stderr) for i in range(99)]; print(); sys.exit('no such package')"
    with pytest.raises(FetchError) as failure:
        run(tmp_path, script)
    assert str(failure.value).startswith("client failed:")
    assert "no such package" in str(failure.value)
    assert "line 98" in str(failure.value)
    assert "line 1\n" not in str(failure.value)


def test_a_client_that_is_not_installed(tmp_path):
    with pytest.raises(FetchError, match="client is not installed") as failure:
        command.run("client", [str(tmp_path / "x")], tmp_path, {}, missing="install it", advanced=lambda _: None)
    assert failure.value.fix == "install it"


def test_its_temporary_files_count_as_progress(tmp_path):
    script = (
        "import tempfile, time, os; f = tempfile.NamedTemporaryFile(); f.write(bytes(5000)); f.flush();"
        "assert f.name.startswith(os.getcwd()); time.sleep(1)"
    )
    seen = []
    run(tmp_path, script, seen.append)
    assert max(seen) >= 5000


def test_it_ends_when_the_user_gives_up(tmp_path):
    written = tmp_path / "pid"

    def give_up(_):
        if written.exists() and written.read_text():
            raise KeyboardInterrupt

    script = f"import os, time; open({str(written)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, script, give_up)
    assert not Path("/proc", written.read_text()).exists()


@pytest.mark.parametrize("names", [[], ["a.whl", "b.whl"]])
def test_a_client_that_leaves_something_else(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(FetchError, match=f"left {len(names)} files"):
        command.only_file(tmp_path, ".whl")

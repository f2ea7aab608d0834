"""What a carried bundle finds on its host: nothing but busybox and no network, or an engine, bwrap, systemd."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pih.bundle import layout as layouts
from pih.carry import export
from pih_runtime.errors import SealError
from pih_steps import deb, tar
from tests.support import docker as dockers
from tests.support import podman as podmans
from tests.support.artifacts import artifact
from tests.support.carried import WORKER, carried, layout, packed, sh
from tests.support.program import PROFILE, pih
from tests.support.waiting import PATIENCE

ASK = """
set -eu
[ "$(ls /sys/class/net 2>/dev/null)" = "" ] || [ "$(ls /sys/class/net)" = lo ]
for tool in python3 perl podman openssl bwrap; do ! command -v $tool; done
ask() {
    for try in $(seq 1200); do
        wget -q -O - http://127.0.0.1:8123/health/ready >/dev/null 2>&1 && break
        sleep 0.1
    done
    wget -q -O - --header 'Content-Type: application/json' --post-data '{"model": "smollm2-135m-instruct",
        "max_tokens": 16, "messages": [{"role": "user", "content": "What is the capital of France?"}]}' \
        http://127.0.0.1:8123/v1/chat/completions
    echo
}
sh /carried/one.pih verify
sh /carried/one.pih install --prefix /opt/pih
sh /opt/pih/pih start --listen 127.0.0.1:8123 & worker=$!
ask
sh /carried/two.pih upgrade --prefix /opt/pih
sh /opt/pih/pih status --json
kill -TERM $worker
wait $worker
sh /opt/pih/pih start --listen 127.0.0.1:8123 & worker=$!
ask
kill -TERM $worker
wait $worker
sh /opt/pih/pih rollback
sh /opt/pih/pih status --check
sh /opt/pih/pih uninstall
echo "left: $(ls -A /opt)"
"""


@pytest.fixture(scope="module")
def busybox(tmp_path_factory):
    """The static one that locks pin for their seed."""
    package = artifact("deb", "busybox-static")
    path = tmp_path_factory.mktemp("busybox") / "busybox"
    path.write_bytes(next(entry.data for entry in deb.read(package).members if entry.path == "bin/busybox"))
    path.chmod(0o755)
    return path


@pytest.fixture
def minimal_root(tmp_path, busybox):
    """A root with busybox and nothing else, without a network."""
    if (
        not shutil.which("bwrap")
        or subprocess.run(
            ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("bwrap does not work here: no namespaces for a root of its own")
    root = tmp_path / "root"
    for folder in ("bin", "proc", "dev", "tmp", "opt", "carried"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    subprocess.run([busybox, "--install", "-s", root / "bin"], check=True)
    for link in (root / "bin").iterdir():
        if link.is_symlink():
            link.unlink()
            link.symlink_to("busybox")

    def run(script, carried_folder):
        (root / "script").write_text(script)
        command = [
            "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--bind",
            root,
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        command += ["--ro-bind", carried_folder, "/carried", "--clearenv", "--setenv", "PATH", "/bin", "sh", "/script"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_a_real_bundle_in_a_root_of_busybox_without_a_network(tmp_path, minimal_root):
    """Install, answer, upgrade while it runs, answer, roll back, uninstall."""
    made = tmp_path / "made"
    made.mkdir()
    image = json.loads(pih("build", "--profile", PROFILE, "--json").stdout)["layout"]
    pih("export", image, "-o", made / "one.pih")
    # the same deployment with another digest: a manifest that says one thing more
    shutil.copytree(image, made / "layout")
    index = json.loads((made / "layout/index.json").read_bytes())
    name = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads((made / "layout/blobs/sha256" / name).read_bytes())
    manifest["annotations"]["note"] = "another"
    data = json.dumps(manifest).encode()
    digest = layouts.hashlib.sha256(data).hexdigest()
    (made / "layout/blobs/sha256" / digest).write_bytes(data)
    index["manifests"][0] |= {"digest": f"sha256:{digest}", "size": len(data)}
    (made / "layout/index.json").chmod(0o644)
    (made / "layout/index.json").write_text(json.dumps(index))
    # such a manifest is none of pih's, so the command refuses it
    export.export(layouts.read(made / "layout"), made / "two.pih", weights=None, split=0)
    shutil.rmtree(made / "layout")

    run = minimal_root(ASK, made)
    assert run.returncode == 0, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"id"')]
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["The capital of France is Paris."] * 2
    state = json.loads(next(line for line in run.stdout.splitlines() if line.startswith('{"prefix"')))["generations"]
    assert [(entry["current"], len(entry["running"])) for entry in state] == [(False, 1), (True, 0)]
    assert "files: yes" in run.stdout
    assert run.stdout.endswith("left: \n")


def test_under_bwrap_signals_reach_the_worker(tmp_path, busybox):
    if not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    script = WORKER.format(text="sandbox").encode()
    inside = [tar.Entry("bin/busybox", busybox, mode=0o755), tar.Entry("bin/sh", target="busybox")]
    inside.append(tar.Entry("bin/sleep", target="busybox"))
    image = layouts.read(layout(tmp_path / "layout", extra=inside, entry=script))
    file = export.export(image, tmp_path / "x.pih", weights=None, split=0).files[0]
    sh(file, "install", "--prefix", tmp_path / "pih")
    command = ["sh", tmp_path / "pih/pih", "start", "--listen", "127.0.0.1:9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        first = worker.stdout.readline()
        if not first:
            pytest.skip(f"bwrap does not work here: {worker.stderr.read()}")
        assert first == "worker of sandbox\n"
        state = json.loads(sh(tmp_path / "pih/pih", "status", "--json").stdout)["generations"][0]
        assert state["running"]
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "stopped\n"
        assert worker.wait() == 0
        assert "without a sandbox" not in worker.stderr.read()


def test_an_engine_loads_the_image(tmp_path):
    file = carried(tmp_path, "one")
    digest = layouts.read(tmp_path / "one.layout").config_digest.removeprefix("sha256:")
    with podmans.environment(tmp_path / "podman") as own:
        sh(file, "load", "podman", environment=own)
        found = subprocess.run(
            ["podman", "image", "inspect", "--format", "{{.Id}}", "localhost/pih/tiny:0.1.0"],
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            check=True,
        )
    assert found.stdout.strip() == digest
    refused = sh(file, "load", "kubectl", check=False)
    assert (refused.returncode, "no engine" in refused.stderr) == (2, True)


def test_docker_and_containerd_load_the_image(tmp_path):
    file = carried(tmp_path, "one")
    copy = layouts.read(tmp_path / "one.layout")
    with dockers.engine(tmp_path / "docker") as engine:
        sh(file, "load", "docker", environment=engine.environment)
        loaded = engine.ask("image", "inspect", "--format", "{{.Id}}", "localhost/pih/tiny:0.1.0")
        assert loaded == copy.config_digest
        containerd = {"CONTAINERD_ADDRESS": engine.containerd}
        sh(file, "load", "ctr", environment=containerd)
        listed = subprocess.run(
            ["ctr", "images", "list"], capture_output=True, text=True, env={**os.environ, **containerd}, check=True
        )
    assert copy.digest in listed.stdout
    assert "localhost/pih/tiny:0.1.0" in listed.stdout


SETTINGS = {
    "BLOCK_SIZE": "1M",
    "BLOCKSIZE": "1M",
    "DF_BLOCK_SIZE": "1G",
    "DU_BLOCK_SIZE": "1G",
    "LS_BLOCK_SIZE": "1K",
    "TAR_OPTIONS": "--strip-components=1",
    "TAR_READER_OPTIONS": "no-such",
    "GZIP": "--no-such",
    "PIGZ": "--no-such",
    "GREP_OPTIONS": "-v",
    "POSIXLY_CORRECT": "1",
    "_POSIX2_VERSION": "199209",
    "TIME_STYLE": "+%s",
    "QUOTING_STYLE": "c",
    "COLUMNS": "20",
    "TZ": "Asia/Kathmandu",
    "IFS": "0123456789",
    "CDPATH": "/",
    "ENV": "/no-such",
    "BASH_ENV": "/no-such",
    "GLOBIGNORE": "*",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "tr_TR.UTF-8",
    "EXTRACT_UNSAFE_SYMLINKS": "0",
}


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_settings_of_the_hosts_tools_change_nothing(one, tmp_path, shell):
    command = shell.split()
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    prefix = tmp_path / "pih"
    assert "integrity  ok" in sh(one, "verify", shell=command, environment=SETTINGS).stdout
    sh(one, "install", "--prefix", prefix, shell=command, environment=SETTINGS)
    assert "files: yes" in sh(prefix / "pih", "status", "--check", shell=command, environment=SETTINGS).stdout
    assert sh(prefix / "pih", "start", "--no-sandbox", environment=SETTINGS).stdout == "worker of one\n"
    asked = json.loads(sh(prefix / "pih", "status", "--json", shell=command, environment=SETTINGS).stdout)
    assert 100_000 < asked["generations"][0]["disk_bytes"] < 1_000_000
    sh(prefix / "pih", "uninstall", shell=command, environment=SETTINGS)
    assert not prefix.exists()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return carried(tmp_path_factory.mktemp("made"), "one")


def test_a_df_that_does_not_know_its_disk(one, tmp_path):
    """As that of busybox in a root that is no mount point."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "df").write_text(
        "#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n"
        'echo "df: can\'t find mount point" >&2\nexit 1\n'
    )
    (tools / "df").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    run = sh(one, "install", "--prefix", tmp_path / "pih", environment=path)
    assert run.stderr.count("df does not know what is free") == 1
    assert "bad number" not in run.stderr
    assert sh(tmp_path / "pih/pih", "start", "--no-sandbox").stdout == "worker of one\n"


def test_a_unit_for_systemd(tmp_path):
    file, units = carried(tmp_path, "one"), tmp_path / "units"
    prefix = tmp_path / "pih"
    said = sh(file, "install", "--prefix", prefix, "--systemd", "--unit-dir", units).stderr
    unit = units / "pih-tiny.service"
    text = unit.read_text()
    assert f"ExecStart=/bin/sh {prefix}/pih start --prefix {prefix} --no-sandbox" in text
    assert "NoNewPrivileges=yes" in text
    assert "daemon-reload" in said
    if os.getuid() == 0:
        assert "DynamicUser=yes" in text
        assert "PrivateDevices=yes" in text
    if shutil.which("systemd-analyze"):
        run = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert str(unit) not in run.stderr, run.stderr
    sh(prefix / "pih", "uninstall")
    assert not unit.exists()
    assert not prefix.exists()


def test_weights_that_are_delivered_apart(tmp_path):
    weights = tmp_path / "packed.safetensors"
    packed(weights)
    without = carried(tmp_path / "a", "apart", delivery="separate", weights=b"")
    with_them = carried(tmp_path / "b", "apart", delivery="separate", weights=b"", apart=weights)
    refused = sh(without, "install", "--prefix", tmp_path / "pih", check=False)
    assert (refused.returncode, "separately" in refused.stderr) == (2, True)
    for file, options in ((without, ["--weights", weights]), (with_them, [])):
        prefix = tmp_path / f"pih{len(options)}"
        sh(file, "install", "--prefix", prefix, *options)
        assert (prefix / "current/root/pih/weights/weights.safetensors").read_bytes() == weights.read_bytes()
        table = (prefix / "current/root/pih/weights/weights.digests").read_bytes()
        assert table == weights.with_suffix(".digests").read_bytes()
        assert sh(prefix / "pih", "start", "--no-sandbox").stdout == "worker of apart\n"
        sh(prefix / "pih", "status", "--check")
    # engines get the image alone
    with podmans.environment(tmp_path / "podman") as own:
        sh(with_them, "load", "podman", environment=own)


def test_a_unit_passes_the_variables_on_that_the_lock_names(tmp_path):
    file = carried(tmp_path, "one", permissions={"environment": ["NPU_DEVICES"]})
    sh(file, "install", "--prefix", tmp_path / "pih", "--systemd", "--unit-dir", tmp_path)
    service = (tmp_path / "pih-tiny.service").read_text().partition("[Service]")[2].partition("[Install]")[0]
    assert "PassEnvironment=NPU_DEVICES\n" in service


@pytest.mark.parametrize("what", ["devices", "paths"])
def test_a_host_without_what_the_bundle_needs(tmp_path, what):
    file = carried(tmp_path, "one", permissions={what: ["/dev/acme*"]})
    sh(file, "install", "--prefix", tmp_path / "pih")
    refused = sh(tmp_path / "pih/pih", "start", "--no-sandbox", check=False)
    assert (refused.returncode, "/dev/acme*, which this host has not" in refused.stderr) == (9, True)


def test_a_path_of_the_host_that_would_hide_a_file_of_the_bundle(tmp_path):
    for pattern in ("/usr/lib", "/usr/*/x86_64-linux-gnu", "/usr/bin/python3.*"):
        with pytest.raises(SealError, match="of its own"):
            carried(tmp_path / pattern.replace("/", "_"), "one", permissions={"paths": [pattern]})


def test_under_bwrap_paths_of_the_host_are_seen(tmp_path, busybox, request):
    if not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    shared = Path(tempfile.mkdtemp(prefix="pih-test-", dir="/var/tmp"))  # /tmp is the sandbox's own
    request.addfinalizer(lambda: shutil.rmtree(shared))
    (shared / "note").write_text("hello")
    script = f"#!/bin/sh\necho $(cat {shared}/note) $NPU_DEVICES; ls /var/tmp\n".encode()
    inside = [tar.Entry("bin/busybox", busybox, mode=0o755)]
    inside += [tar.Entry(f"bin/{name}", target="busybox") for name in ("sh", "cat", "ls")]
    own = {"paths": [str(shared)], "environment": ["NPU_DEVICES"], "devices": ["/dev/nul*"]}
    image = layouts.read(layout(tmp_path / "layout", extra=inside, entry=script, permissions=own))
    file = export.export(image, tmp_path / "x.pih", weights=None, split=0).files[0]
    sh(file, "install", "--prefix", tmp_path / "pih")
    run = sh(tmp_path / "pih/pih", "start", environment={"NPU_DEVICES": "fast lane"}, check=False)
    if "without a sandbox" in run.stderr:
        pytest.skip(f"bwrap does not work here: {run.stderr}")
    assert run.stdout == f"hello fast lane\n{shared.name}\n", run.stderr


@contextmanager
def serving(tmp_path, busybox):
    """An installed bundle under bwrap, running; its worker says when it was told to stop, and takes a while to."""
    if not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    script = b"""#!/bin/sh
trap 'echo told; sleep 1; echo stopped; exit 0' TERM
echo begun
while :; do sleep 0.05; done
"""
    inside = [tar.Entry("bin/busybox", busybox, mode=0o755)]
    inside += [tar.Entry(f"bin/{name}", target="busybox") for name in ("sh", "sleep")]
    image = layouts.read(layout(tmp_path / "layout", extra=inside, entry=script))
    file = export.export(image, tmp_path / "x.pih", weights=None, split=0).files[0]
    sh(file, "install", "--prefix", tmp_path / "pih")
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        ["sh", tmp_path / "pih/pih", "start", "--listen", "127.0.0.1:9"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        start_new_session=True,
    ) as worker:
        try:
            yield worker
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.parametrize("to", ["process", "group"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda sent: sent.name)
def test_under_bwrap_the_worker_has_its_time_to_stop(tmp_path, busybox, sent, to):
    """Whatever is sent, also to all processes of a terminal or service at once."""
    with serving(tmp_path, busybox) as worker:
        first = worker.stdout.readline()
        if not first:
            pytest.skip(f"bwrap does not work here: {worker.stderr.read()}")
        (os.killpg if to == "group" else os.kill)(worker.pid, sent)
        assert worker.communicate(timeout=PATIENCE)[0] == "told\nstopped\n"
        assert worker.returncode == 0
    assert not list((tmp_path / "tmp").iterdir())

"""A bundle of a few kilobytes with all that an installer needs to know; its worker is a script that says who it is."""

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pih.bundle import layout as layouts
from pih.carry import export
from pih_runtime import digests
from pih_runtime import plan as plans
from pih_steps import layer as files
from pih_steps import oci, tar
from pih_steps.lower import safetensors
from tests.support.locks import sealed_text

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "profiles" / "smollm2-cpu.lock.json"
LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
# What stands where the bundle's ld.so does. With --listen it serves until it is told to stop, by a shell of the bundle
# if that has one: a script's program is its shell. It says who it is when it hears signals.
WORKER = """#!/bin/sh
say='echo "worker of {text}"; [ -z "${{NPU_DEVICES-}}" ] || echo "device $NPU_DEVICES, debug ${{NPU_DEBUG-none}}"'
case " $* " in *" --listen "*) ;; *) eval "$say"; exit 0 ;; esac
serve="trap 'echo stopped; exit 0' TERM INT; $say; while :; do sleep 0.05; done"
[ ! -x "${{0%/*}}/sh" ] || exec "${{0%/*}}/sh" -c "$serve"
eval "$serve"
"""
# What a bundle has whose weights are delivered apart.
PLAN = plans.Plan(
    "tiny", plans.Limits(1, 1, 1), 1, 0, (), (), (plans.Weight("table", (1500,), "q8_0", "rows", 6000),), ()
)
SHELL = tar.Entry("usr/lib64/sh", Path("/bin/sh").resolve(), mode=0o755)


def lock(name="tiny", delivery="embed", permissions=None, pin="", **target):
    """The text of a real lock, with another name and delivery, and parts of its target changed.

    permissions: of its first plugin. pin: of its weights.
    """
    data = json.loads(LOCK.read_text("utf-8"))
    data["profile"]["name"] = name
    data["weights"] = {**data["weights"], "delivery": delivery, "digest": pin}
    data["plugins"][0]["permissions"] |= permissions or {}
    data["target"] |= target
    return sealed_text(json.dumps(data)).encode()


def layout(
    folder,
    text="one",
    *,
    name="tiny",
    weights=b"weights " * 1000,
    target=None,
    delivery="embed",
    extra=(),
    hostile=b"",
    entry=b"#!/bin/sh\n",
    permissions=None,
    pin="",
):
    """Write an image layout. text: what tells it from others. extra: further entries of its base layer.

    entry: its worker under bwrap. hostile: an archive for a layer of its own, with what no layer of a bundle has.
    """
    base = [
        tar.Entry(LOADER, WORKER.format(text=text).encode(), mode=0o755),
        tar.Entry("usr/lib64/ld-linux-x86-64.so.2", target="../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
        tar.Entry("usr/bin/python3.11", b"python", mode=0o755),
        *extra,
    ]
    own = [
        tar.Entry("usr/bin/pih-worker", entry, mode=0o755),
        tar.Entry("pih/lock.json", lock(name, delivery, permissions, pin, **(target or {}))),
        *([tar.Entry("pih/plan.json", plans.to_json(PLAN).encode())] if delivery == "separate" else []),
    ]
    packed = [tar.Entry("pih/weights/weights.safetensors", weights)] if weights else []
    lines = [files.describe(files.File(entry, "tiny", "a test")) for entry in (*base, *own, *packed)]
    digest = next(line["digest"] for line in lines if line["path"] == "/pih/lock.json")
    head = json.dumps({"schema": 1, "name": name, "lock": digest})[:-1]
    bundle = head + ', "files": ' + files.to_json(sorted(lines, key=lambda line: line["path"])) + "}\n"
    oci.create(folder)
    layers = [
        _gzip(folder, base, "base", [("tmp", 0o1777)]),
        _gzip(folder, [*own, tar.Entry("pih/bundle.json", bundle.encode())], "deployment"),
        *(_plain(folder, entry) for entry in packed),
    ]
    if hostile:
        layers.insert(1, _archived(folder, hostile, "hostile"))
    settings = {"Entrypoint": ["/usr/bin/pih-worker"], "Env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"]}
    oci.add_image(folder, layers, settings, "amd64", f"localhost/pih/{name}:0.1.0")
    return folder


def packed(path, tensor=b"packed" * 1000):
    """Weights of such a bundle with their digests beside them; these give their root."""
    entry = safetensors.Entry("table", "U8", (len(tensor),), len(tensor), lambda: [tensor])
    safetensors.write(path, [entry], {"table": "q8_0 rows [1500]"})
    text = digests.to_text(digests.table_of(memoryview(path.read_bytes()), 4096))
    path.with_suffix(".digests").write_bytes(text)
    return digests.root(text)


def carried(folder, text="one", *, split=0, apart=None, **options):
    """A .pih file of such a bundle in the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    image = layouts.read(layout(folder / f"{text}.layout", text, **options))
    return export.export(image, folder / f"{text}.pih", weights=apart, split=split).files[0]


def sh(file, *arguments, shell=("sh",), environment=None, folder=None, check=True):
    """Run a .pih file, in a folder."""
    run = subprocess.run(
        [*shell, str(file), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    assert not check or run.returncode == 0, run.stderr
    return run


def _gzip(folder, entries, title, folders=()):
    plain = []
    stream = type("Sink", (), {"write": lambda _, data: plain.append(data)})()
    tar.write(stream, entries, folders)
    return _archived(folder, b"".join(plain), title)


def _archived(folder, archive, title):
    blob = oci.add_bytes(folder, gzip.compress(archive, mtime=0), oci.LAYER_GZIP)
    return oci.Layer(blob, oci.add_bytes(folder, archive, oci.LAYER).digest, title)


def _plain(folder, entry):
    blob = oci.add_stream(folder, oci.LAYER, lambda sink: tar.write(sink, [entry]))
    return oci.Layer(blob, blob.digest, "weights")


def applets(folder):
    """A PATH of busybox's tools alone."""
    tools = folder / "bin"
    tools.mkdir()
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("busybox is not installed")
    for name in {
        "busybox",
        *subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split(),
    }:
        (tools / name).symlink_to(busybox)
    return tools


def flipped(data, at, bit):
    """The bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

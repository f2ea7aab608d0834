"""A bundle of a few kilobytes that holds together as a real one does: a shipped lock, the image step, small files."""

import hashlib
import json
from pathlib import Path

import attrs

from pih import lock as locks
from pih_runtime import digests
from pih_steps import base, image, layer, tar
from pih_steps.spec import Spec

ROOT = Path(__file__).resolve().parents[2]
LOCK = locks.read(ROOT / "profiles" / "smollm2-cpu.lock.json")
PLAN = b'{"calls": []}\n'
WEIGHTS = bytes(range(256)) * 16


def lock_text(lock=LOCK):
    """The text of a lock whose plan is the one here."""
    digest = hashlib.sha256(PLAN).hexdigest()
    steps = tuple(
        attrs.evolve(step, params={**step.params, "expected_plan_sha256": digest}) if step.id == "plan" else step
        for step in lock.build.steps
    )
    build, plan = attrs.evolve(lock.build, steps=steps), attrs.evolve(lock.plan, sha256=digest)
    return locks.to_json(attrs.evolve(lock, plan=plan, build=build))


def write(folder, *, lock=LOCK, change=lambda _step, files: files):
    """The layout, in folder/image. change(step, files) may alter the files of a layer before the image is made."""
    folder.mkdir(parents=True, exist_ok=True)
    text = lock_text(lock).encode()
    (folder / "lock.json").write_bytes(text)
    (folder / "plan").write_bytes(PLAN)
    (folder / "kernels").write_bytes(b"kernels")
    (folder / "weights").write_bytes(WEIGHTS)
    (folder / "digests").write_bytes(digests.to_text(digests.table_of(memoryview(WEIGHTS), digests.SMALLEST)))
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "tokenizer.json").write_text("{}")
    runtimes = [plugin.id for plugin in lock.plugins if plugin.runtime]
    contents = {
        "base": [
            _file("usr/bin/python3.11", b"python", "python3.11-minimal", mode=0o755),
            layer.File(tar.Entry("usr/bin/python3", target="python3.11"), "python3.11-minimal", "its name"),
            _file("usr/share/doc/libc6/copyright", b"copyright", "libc6"),
        ],
        "wheels": [_file("pih/lib/jinja2/__init__.pyc", b"jinja", "jinja2")],
        "app": [
            _file("pih/lock.json", text, "pih"),
            _file("usr/bin/pih-worker", b"worker", "pih", mode=0o755),
            *(_file(f"pih/lib/{name.replace('/', '_')}.pyc", name.encode(), name) for name in runtimes),
        ],
    }
    for step, files in contents.items():
        layer.write(folder / step, change(step, files), base.FOLDERS if step == "base" else ())
    steps = ("base", "wheels", "app", "plan", "model", "kernels")
    if lock.weights.delivery == "embed":
        steps = (*steps, "weights", "digests")
    image.run(
        Spec(
            params={"name": lock.profile.name, "arch": lock.target.arch},
            artifacts={},
            trees={name: ROOT / name for name in LOCK.build.steps[-1].trees} | {"lock": folder / "lock.json"},
            steps={step: folder / step for step in steps},
            tools=(),
            output=folder / "image",
        )
    )
    return folder / "image"


def _file(path, data, component, mode=0o644):
    return layer.File(tar.Entry(path, data, mode=mode), component, f"reason of {path}")


def index(layout):
    """The parsed index."""
    return json.loads((layout / "index.json").read_bytes())


def blob(layout, descriptor):
    """The bytes that a descriptor names."""
    return (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()


def attached(layout):
    """artifactType → document."""
    found = {}
    for entry in index(layout)["manifests"][1:]:
        manifest = json.loads(blob(layout, entry))
        found[manifest["artifactType"]] = blob(layout, manifest["layers"][0])
    return found

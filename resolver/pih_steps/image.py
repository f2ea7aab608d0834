"""Step `image`: the layers and the deployment's own files to one OCI image layout.

Inputs: steps base, wheels and app; of the deployment plan, model, kernels where it has a pack, and weights with their
digests where they are embedded; tree `lock`, and every tree that any step reads: bundle.json has their digests. Params:
name, arch. Layers lie in the order of how seldom they change.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps import devices, layer, oci, reach, source, tar
from pih_steps.spec import Spec, param

ARCHITECTURES = {"x86_64": "amd64"}
USER = "65532:65532"
ENVIRONMENT = ("PATH=/usr/bin", "LANG=C.UTF-8", "PYTHONUTF8=1", "PYTHONDONTWRITEBYTECODE=1")
LOCK = "/pih/lock.json"
WEIGHTS = "pih/weights/weights.safetensors"
DIGESTS = "pih/weights.digests"
_BELOW = ("base", "wheels", "app")
_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*")


def run(spec: Spec) -> None:
    """Write the layout."""
    layout, lock, name = spec.output, _lock(spec), _name(spec)
    oci.create(layout)
    layers = [oci.add_gzip_layer(layout, _step(spec, step) / "layer.tar.gz", step) for step in _BELOW]
    lines: list[dict[str, Any]] = []
    for step in _BELOW:
        found = json.loads((_step(spec, step) / "files.json").read_bytes())
        lines += [{**line, "layer": step} for line in found]
    own, weights = _deployment(spec, lock), _weights(spec)
    lines += [{**layer.describe(file), "layer": "deployment"} for file in own]
    lines += [{**layer.describe(file), "layer": "weights"} for file in weights]
    _check_reach(lock, [str(line["path"]) for line in lines])
    bundle = tar.Entry("pih/bundle.json", _bundle(name, lines, _sources(spec)))
    layers.append(_compressed(layout, [*(file.entry for file in own), bundle]))
    layers += [_uncompressed(layout, file.entry) for file in weights]
    oci.add_image(layout, layers, settings(name, lock), _architecture(spec), tag(name, lock))


def _lock(spec: Spec) -> dict[str, Any]:
    if "lock" not in spec.trees:
        raise BuildError("the step has no tree 'lock'", fix="write the lock again: pih lock")
    return dict(json.loads(spec.trees["lock"].read_bytes()))


def _name(spec: Spec) -> str:
    name = str(param(spec, "name"))
    if not _NAME.fullmatch(name):
        raise BuildError(
            f"an image cannot be named {name!r}",
            fix="give the deployment a name of lower-case letters and digits, with '.', '_' or '-' between them",
        )
    return name


def _check_reach(lock: dict[str, Any], paths: list[str]) -> None:
    """Raises BuildError where a plugin may reach a path of the host that would hide a file of the image.

    What the host matches a pattern with is known there alone: `pih run` looks again.
    """
    for plugin in lock["plugins"]:
        for pattern in plugin["permissions"].get("paths", ()):
            hidden = "" if reach.given(pattern) else next((path for path in paths if reach.hides(pattern, path)), "")
            if hidden:
                raise BuildError(
                    f"{plugin['id']} asks for {pattern} of the host, where the image has {hidden} of its own",
                    fix="leave the plugin out, or have its author ask for less",
                )


def _architecture(spec: Spec) -> str:
    arch = param(spec, "arch")
    if arch not in ARCHITECTURES:
        raise BuildError(f"no image for architecture {arch!r}", fix=f"one of {', '.join(sorted(ARCHITECTURES))}")
    return ARCHITECTURES[arch]


def _provider(lock: dict[str, Any], capability: str) -> str:
    """The plugin that the lock picked for a capability."""
    providers = [plugin["id"] for plugin in lock["plugins"] if capability in plugin["provides"]]
    if len(providers) != 1:
        raise BuildError(
            f"the lock has {len(providers)} plugins for {capability}", fix="write the lock again: pih lock"
        )
    return str(providers[0])


def _pack(lock: dict[str, Any]) -> str:
    """The plugin that the kernels are of."""
    packs = [str(plugin["id"]) for plugin in lock["plugins"] if plugin["id"].startswith("kernels/")]
    if not packs:
        raise BuildError("the lock has no plugin for its kernels", fix="write the lock again: pih lock")
    return packs[0]


def _step(spec: Spec, name: str) -> Path:
    try:
        return spec.steps[name]
    except KeyError:
        raise BuildError(f"the image has no step {name!r} to take from", fix="write the lock again: pih lock") from None


def _deployment(spec: Spec, lock: dict[str, Any]) -> list[layer.File]:
    """The small files that make the image this deployment."""
    decoder = _provider(lock, "model.decoder")
    files = [("plan.json", _step(spec, "plan"), decoder, "the model, lowered for this deployment")]
    if "kernels" in spec.steps:
        made = spec.steps["kernels"]
        pack = _pack(lock)
        packed = (
            {f"kernels/{path.name}": path for path in sorted(made.iterdir())}
            if made.is_dir()
            else {"kernels/pack.so": made}
        )
        files += [(name, path, pack, "the kernels that the plan calls") for name, path in packed.items()]
    if "weights" in spec.steps:
        reason = "digests of the weights' chunks, which the worker checks them by"
        files.append((DIGESTS.removeprefix("pih/"), _step(spec, "digests"), "weights", reason))
    model = _step(spec, "model")
    files += [
        (f"model/{path.relative_to(model).as_posix()}", path, "model", "tokenizer and chat template of the model")
        for path in sorted(model.rglob("*"))
        if path.is_file()
    ]
    return [
        layer.File(tar.Entry(f"pih/{name}", path.read_bytes()), component, reason)
        for name, path, component, reason in files
    ]


def _weights(spec: Spec) -> list[layer.File]:
    """The weights where they are part of the image; streamed, for they may be larger than memory."""
    if "weights" not in spec.steps:
        return []
    entry = tar.Entry(WEIGHTS, spec.steps["weights"])
    return [layer.File(entry, "weights", "the model's weights, as the kernels read them")]


def _sources(spec: Spec) -> dict[str, str]:
    """What the image was made from in the source tree."""
    return {name: source.digest(path) for name, path in sorted(spec.trees.items()) if name != "lock"}


def _bundle(name: str, lines: list[dict[str, Any]], sources: dict[str, str]) -> bytes:
    """/pih/bundle.json: every file of the image but itself."""
    locks = [line["digest"] for line in lines if line["path"] == LOCK]
    if len(locks) != 1:
        raise BuildError(f"step app wrote no {LOCK}", fix="this is a defect of the step: please report it")
    paths = sorted(line["path"] for line in lines)
    twice = {path for path, after in itertools.pairwise(paths) if path == after}
    if twice:
        raise BuildError(f"two layers write {min(twice)}", fix="a file belongs to one component: rename one of the two")
    head = {"schema": 1, "name": name, "lock": locks[0]}
    text = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in head.items())
    body = json.dumps(sources, indent=2, ensure_ascii=False).replace("\n", "\n  ")
    text += f'  "sources": {body},\n'
    body = layer.to_json(sorted(lines, key=lambda line: str(line["path"])))
    return ("{\n" + text + '  "files": ' + body.rstrip() + "\n}\n").encode()


def _compressed(layout: Path, entries: list[tar.Entry]) -> oci.Layer:
    diff: list[str] = []

    def write(sink: tar.Sink) -> None:
        gzip = tar.Gzip(sink)
        archive = tar.Hashing(gzip)
        tar.write(archive, entries)
        gzip.finish()
        diff.append(archive.digest)

    blob = oci.add_stream(layout, oci.LAYER_GZIP, write)
    return oci.Layer(blob, diff[0], "deployment")


def _uncompressed(layout: Path, entry: tar.Entry) -> oci.Layer:
    """Weights do not compress, and an uncompressed layer can be read in place."""
    blob = oci.add_stream(layout, oci.LAYER, lambda sink: tar.write(sink, [entry]))
    return oci.Layer(blob, blob.digest, "weights")


def tag(name: str, lock: dict[str, Any]) -> str:
    """What engines call the image."""
    return f"localhost/pih/{name}:{lock['pih']}"


def settings(name: str, lock: dict[str, Any]) -> dict[str, Any]:
    """What a container of the image is started with."""
    asked = [device for plugin in lock["plugins"] for device in plugin["permissions"]["devices"]]
    return {
        "Entrypoint": ["/usr/bin/pih-worker"],
        "User": USER,
        "Env": [*ENVIRONMENT, *devices.environment(asked)],
        "WorkingDir": "/",
        "ExposedPorts": {f"{lock['service']['port']}/tcp": {}},
        "StopSignal": "SIGTERM",
        "Labels": {"org.opencontainers.image.title": name, "org.opencontainers.image.version": lock["pih"]},
    }

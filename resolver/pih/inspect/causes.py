"""Why each thing of a lock, and each file of a bundle, is there: a graph from things to lines of the profile.

A cause is either the end of a chain, the profile's line with what follows from it, or a link to another thing. A file's
cause is the reason that the build gave for it; where that reason names no other file, the component that it is of.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

import attrs

from pih.inspect import reasons
from pih.inspect.bundle import Contents, File, checkpoint, origin
from pih.inspect.reasons import Chain
from pih.lock import Artifact, Lock
from pih_steps import devices

Key = tuple[str, str]
_MODULE_ROOT = re.compile(r"/(?:pih/lib|usr/lib/python3\.\d+(?:/lib-dynload)?)/")
_VERBS = {"imported": "imports", "needed": "needs"}
BASE: Key = ("part", "base userland")
RUNTIME: Key = ("part", "pih")
WEIGHTS: Key = ("part", "weights")
TEXT: Key = ("part", "model")


@attrs.frozen
class Thing:
    """What one can ask about. about: what it is, in words. digest: 'sha256:…' of its bytes, '' without.

    component: what a file, a kernel or a plugin from outside is of, None for other things.
    """

    kind: str
    name: str
    about: str
    digest: str = ""
    component: Key | None = None

    @property
    def key(self) -> Key:
        """Its place in the graph."""
        return self.kind, self.name


@attrs.frozen
class Cause:
    """words: the links that this cause adds to a chain.

    parent: what they follow from; None where they begin with the profile's line.
    """

    words: Chain
    parent: Key | None = None


@attrs.frozen
class Graph:
    """Everything that one can ask about, and why each is there; `why.chains` follows the causes."""

    things: dict[Key, Thing]
    causes: dict[Key, tuple[Cause, ...]]

    def joined(self, other: Graph) -> Graph:
        """Both."""
        return Graph(self.things | other.things, self.causes | other.causes)


def of_lock(lock: Lock) -> Graph:
    """Plugins, capabilities, artifacts, ops, kernels, and the parts of an image that are none of these."""
    plugins = {plugin.id for plugin in lock.plugins}
    things: list[tuple[Thing, Iterable[Cause]]] = []
    for plugin in lock.plugins:
        about = ", ".join(filter(None, (plugin.version, origin(plugin))))
        carrier = ("artifact", plugin.artifact) if plugin.artifact else None
        thing = Thing("plugin", plugin.id, about, component=carrier)
        things.append((thing, _of_plugin(lock, plugin.id)))
        for capability, version in plugin.provides.items():
            cause = Cause((f"{plugin.id} provides {capability} {version}",), ("plugin", plugin.id))
            things.append((Thing("capability", capability, f"{version}, of {plugin.id}"), [cause]))
    for artifact in lock.artifacts:
        about = f"{artifact.version}, {artifact.kind}, {artifact.size} bytes"
        thing = Thing("artifact", artifact.name, about, f"sha256:{artifact.sha256}")
        things.append((thing, [_of_artifact(artifact.name, reason, plugins) for reason in artifact.reasons]))
    things += _of_plan(lock)
    things += _of_parts(lock)
    things += _of_host(lock)
    return Graph({thing.key: thing for thing, _ in things}, {thing.key: _unique(why) for thing, why in things})


def _unique(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    return tuple(dict.fromkeys(causes))


def _of_plugin(lock: Lock, name: str) -> list[Cause]:
    """The profile's own lines, and every plugin that requires something of it."""
    said = next(plugin.reasons for plugin in lock.plugins if plugin.id == name)
    chains = [reasons.parts(reason) for reason in said]
    required = [
        Cause((f"{plugin.id} requires {need.capability} {need.specifier}".rstrip(),), ("plugin", plugin.id))
        for plugin in lock.plugins
        for need in plugin.requires
        if need.provider == name and plugin.id != name
    ]
    links = {cause.words[-1] for cause in required}
    return [*(Cause(chain) for chain in chains if len(chain) == 1 or chain[-1] not in links), *required]


def _of_artifact(name: str, reason: str, plugins: set[str]) -> Cause:
    """Its last link is of a plugin where that is named first, e.g. `model/text imports it`."""
    *before, last = reasons.parts(reason)
    named = re.sub(r"\bit$", name, last) if before else last
    plugin = last.partition(" ")[0]
    return Cause((named,), ("plugin", plugin)) if before and plugin in plugins else Cause((*before, named))


def _of_plan(lock: Lock) -> Iterable[tuple[Thing, list[Cause]]]:
    """Ops and kernels: what the lowered model calls."""
    model = ("plugin", str(lock.model.get("plugin")))
    packs = [plugin.id for plugin in lock.plugins if plugin.kind == "kernels"]
    pack = ("plugin", packs[0]) if packs else None
    kernels: dict[str, list[str]] = {}
    for binding in lock.bindings:
        kernels.setdefault(binding.op, []).append(binding.symbol)
        slow = ", scalar reference" if binding.path == "reference" else ""
        about = f"{binding.source}{slow}, {binding.precision}"
        cause = Cause((f"op {binding.op} is bound to {binding.symbol}",), ("op", binding.op))
        yield Thing("kernel", binding.symbol, about, component=pack), [cause]
    for op, symbols in kernels.items():
        served = f"{len(symbols)} kernels" if len(symbols) > 1 else f"kernel {symbols[0]}"
        falling = [line for line in lock.fallbacks if line.partition(":")[0].split()[0] == op]
        allowed = f"; the profile's kernels.fallback_ops allows it: {', '.join(falling)}" if falling else ""
        yield (
            Thing("op", op, f"served by {served}{allowed}"),
            [Cause((f"{model[1]} lowers the model to calls of {op}",), model)],
        )
    plan = Cause((f"{model[1]} lowers the model to the plan",), model)
    yield Thing("part", "plan", f"{lock.plan.calls} calls", f"sha256:{lock.plan.sha256}"), [plan]


def _of_parts(lock: Lock) -> Iterable[tuple[Thing, list[Cause]]]:
    """What files are of that are neither of a plugin nor of an artifact."""
    held = {artifact.name: artifact for artifact in lock.artifacts}
    base = [held[name] for name in lock.build.interpreter if name in held]
    why = [Cause(reasons.parts(reason)) for artifact in base for reason in artifact.reasons]
    yield Thing(*BASE, "the Python that runs the worker, and its libraries"), why
    running = [Cause((f"{name} runs in the worker",), ("plugin", name)) for name in lock.start_order]
    yield Thing(*RUNTIME, f"{lock.pih}, the runtime of every bundle"), running
    reading = [plugin.id for plugin in lock.plugins if "model.text" in plugin.provides]
    text = [Cause((f"{name} reads the model's tokenizer and chat template",), ("plugin", name)) for name in reading]
    yield Thing(*TEXT, "tokenizer and chat template"), text
    yield Thing(*WEIGHTS, str(checkpoint(lock)["source"])), _of_weights(lock, held)


def _of_host(lock: Lock) -> Iterable[tuple[Thing, list[Cause]]]:
    """What an image lacks on purpose: devices by family, and the libraries of their driver."""
    asking = {name: [p.id for p in lock.plugins if name in p.permissions.devices] for name in sorted(devices.FAMILIES)}
    for family, plugins in asking.items():
        if not plugins:
            continue
        about = "devices of the host, by the name that container engines know (Container Device Interface)"
        yield (
            Thing("host", family, about),
            [Cause((f"{name} asks for {family}",), ("plugin", name)) for name in plugins],
        )
        for library in devices.FAMILIES[family].libraries:
            about = (
                f"of the host's driver, not in the image: what brings {family} brings it, a container engine by its "
                "runtime or CDI, or PIH itself without an engine"
            )
            cause = Cause((f"{library} is the part of the driver of {family} that is called",), ("host", family))
            yield Thing("host", library, about), [cause]


def _of_weights(lock: Lock, held: Mapping[str, Artifact]) -> list[Cause]:
    """The profile's line `model.weights`: of the checkpoint's artifact, or of the tool that packs made-up weights."""
    artifact = held.get(str(checkpoint(lock).get("artifact", "")))
    if artifact is not None:
        return [Cause((f"the weights are packed from {artifact.name}",), ("artifact", artifact.name))]
    first = [reasons.parts(reason)[0] for item in held.values() for reason in item.reasons]
    return [Cause((line,)) for line in dict.fromkeys(first) if reasons.sets(line, "model.weights")]


def of_contents(graph: Graph, held: Contents) -> Graph:
    """A bundle: its lock's graph, every file, the layers that hold them, and the image."""
    files = of_files(graph, held.files)
    things: dict[Key, Thing] = {}
    causes: dict[Key, tuple[Cause, ...]] = {}
    for layer in held.layers:
        own = [thing for file in held.files if file.layer == layer.name and (thing := files.things["file", file.path])]
        thing = Thing("layer", f"{layer.name} layer", f"{len(own)} files, {layer.size} bytes", layer.digest)
        things[thing.key] = thing
        causes[thing.key] = tuple(
            Cause((f"{component[1]} has files in the {thing.name}",), component)
            for component in dict.fromkeys(file.component for file in own)
            if component
        )
    image = Thing("image", held.name, held.reference or "an unpacked image", held.digest)
    whole = {image.key: tuple(Cause((f"the {name} is part of the image",), (kind, name)) for kind, name in things)}
    return graph.joined(files).joined(Graph(things | {image.key: image}, causes | whole))


def of_files(graph: Graph, files: Iterable[File]) -> Graph:
    """Every file of a bundle, the list of files included. graph: of its lock."""
    own = "/pih/bundle.json"
    listed = [*files, File(own, 0, "", "", "pih", "the list of the image's files", "")]
    by_module = {module: file.path for file in listed if (module := module_of(file.path))}
    by_name = {posixpath.basename(file.path): file.path for file in listed}
    paths = {file.path for file in listed}

    def place(name: str) -> str:
        """The file that a reason names: by path, as a module, or as a library."""
        return name if name in paths else by_module.get(name) or by_name.get(name, "")

    things: dict[Key, Thing] = {}
    causes: dict[Key, tuple[Cause, ...]] = {}
    for file in listed:
        component = _component(graph, file)
        about = f"link to {file.target}" if file.target else f"{file.size} bytes" if file.digest else file.reason
        thing = Thing("file", file.path, about, file.digest, component)
        things[thing.key] = thing
        causes[thing.key] = (_of_file(file, component, place),)
    return Graph(things, causes)


def _of_file(file: File, component: Key, place: Callable[[str], str]) -> Cause:
    """Who imports or needs it, where the build said so; else its component."""
    verb, _, name = file.reason.partition(" by ")
    by = place(name) if verb in _VERBS else ""
    if by and by != file.path:
        return Cause((f"{name} {_VERBS[verb]} {module_of(file.path) or posixpath.basename(file.path)}",), ("file", by))
    said = file.reason if file.reason.startswith("module ") else f"{file.path}: {file.reason}"
    return Cause((said,), component)


def _component(graph: Graph, file: File) -> Key:
    """What a file is of. Files that pih itself adds to the base userland are there for it."""
    if file.component == "pih" and file.layer == "base":
        return BASE
    for kind in ("plugin", "artifact", "part"):
        if (kind, file.component) in graph.things:
            return kind, file.component
    return RUNTIME


def module_of(path: str) -> str:
    """The module that a file of the image is, e.g. `jinja2.ext`; '' for other files."""
    root = _MODULE_ROOT.match(path)
    file = PurePosixPath(path)
    if root is None or file.suffix not in (".pyc", ".so"):
        return ""
    folders = path[root.end() :].split("/")[:-1]
    stem = file.name.partition(".")[0]
    return ".".join(folders if stem == "__init__" else [*folders, stem])

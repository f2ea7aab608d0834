"""The Deployment Profile: reading intent from TOML. A profile is untrusted input.

May import `profile_schema`, `sources`, `structure`, `toml_lines`.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import tomllib
from pathlib import Path

import attrs

from pih.profile_rules import check_together, preference
from pih.profile_schema import Intent
from pih.reading import read_at_most, said, toml_of
from pih.sizes import memory_bytes
from pih.sources import canonical
from pih.structure import Path as Keys
from pih.structure import RefusedError, StructureError, dotted, show, structure, unstructure
from pih.toml_lines import key_lines, line_of
from pih_runtime.errors import ProfileError

_MAX_BYTES = 1 << 20


@attrs.frozen
class Profile:
    """An intent with its file: `path` as the user gave it, `lines` for reasons, `sha256` of its canonical form."""

    path: Path
    intent: Intent
    lines: dict[Keys, int]
    sha256: str

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self.intent.deployment.name

    @property
    def native(self) -> bool:
        """Does it name the host's instruction set? Its lock then holds for hosts like this one only."""
        return self.intent.target.isa == "native"

    def file(self, root: Path) -> str:
        """The profile's path as locks and reasons show it: relative to the source tree, else its bare name."""
        path = self.path.resolve()
        return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.name

    def with_devices(self, count: int) -> Profile:
        """The same intent for so many devices; it is in no file."""
        return attrs.evolve(
            self, intent=attrs.evolve(self.intent, device=attrs.evolve(self.intent.device, count=count))
        )

    def reason(self, root: Path, section: str, key: str) -> str:
        """`profiles/x.toml:12 model.plugin = "llama"`: the line that asks for something."""
        value = show(getattr(getattr(self.intent, section), key))
        written = (section, key) in self.lines
        note = "" if written else " (default)"
        return f"{self.file(root)}:{line_of(self.lines, (section, key))} {section}.{key} = {value}{note}"


def load(path: Path) -> Profile:
    """Read and check a profile; raises ProfileError with file, line, key, what is allowed."""
    fix = "give the path of a profile (TOML)"
    try:
        str(path).encode()
    except UnicodeEncodeError as problem:  # a lock names it, and is UTF-8
        raise ProfileError("its name is not UTF-8", where=str(path), fix="rename it") from problem
    if path.is_absolute() and path.parts[1] in ("dev", "proc"):
        raise ProfileError("a profile is a file, beside which its lock is written", where=str(path), fix=fix)
    try:
        raw = read_at_most(path, _MAX_BYTES)
    except OSError as problem:
        raise ProfileError(f"cannot read the profile: {problem.strerror}", where=str(path), fix=fix) from problem
    except ValueError as problem:  # no plain file, too large, a NUL in the path
        where = str(path).replace("\0", "\\0")
        raise ProfileError(f"cannot read the profile: {said(problem)}", where=where, fix=fix) from problem
    return parse(raw, path)


def parse(raw: bytes, path: Path) -> Profile:
    """The profile in `raw`; `path` is its place in messages and the base of its relative sources."""
    if raw.startswith(codecs.BOM_UTF8):
        fix = "save the file as UTF-8 without one"
        raise ProfileError("begins with a byte order mark, which TOML has not", where=f"{path}:1", fix=fix)
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise ProfileError("not UTF-8", where=f"{path}:{line}", fix="save the file as UTF-8") from problem
    try:
        data = toml_of(text)
    except tomllib.TOMLDecodeError as problem:
        found = re.search(r"\(at line (\d+), column \d+\)", str(problem))
        line = int(found[1]) if found else text.count("\n") + 1
        what = re.sub(r" \(at .*\)$", "", str(problem))
        raise ProfileError(
            f"not TOML: {what}", where=f"{path}:{line}", fix="correct the syntax of this line"
        ) from problem
    except ValueError as problem:
        raise ProfileError(
            str(problem), where=str(path), fix="a profile has tables with plain values only"
        ) from problem
    lines = key_lines(text)
    try:
        intent = structure(data, Intent)
        check_together(intent)
    except StructureError as failure:
        first = min(failure.problems, key=lambda problem: (problem.what != "unknown key", line_of(lines, problem.path)))
        raise _refused(path, lines, first.path, first.what, first.fix) from failure
    except RefusedError as refused:
        raise _refused(path, lines, tuple(refused.key.split(".")), refused.what, refused.fix) from refused
    return Profile(path=path, intent=intent, lines=lines, sha256=_digest(intent))


def _refused(path: Path, lines: dict[Keys, int], keys: Keys, what: str, fix: str) -> ProfileError:
    return ProfileError(f"{dotted(keys)}: {what}", where=f"{path}:{line_of(lines, keys)}", fix=fix)


def _digest(intent: Intent) -> str:
    """Equal intents have one digest, however they are written.

    Places of plugins are no part of it: a lock says where those are from that it has, and others do not matter.
    """
    data = unstructure(intent)
    del data["plugins"]
    for section, key in (("target", "memory"), ("device", "memory"), ("limits", "spill")):
        amount = data[section][key]
        data[section][key] = memory_bytes(amount) if amount else 0
    data["model"] = {key: canonical(text) for key, text in data["model"].items()}
    data["kernels"]["fallback_ops"].sort()
    data["selection"]["prefer"] = [
        [name, sorted(map(str, versions))] for name, versions in map(preference, intent.selection.prefer)
    ]
    whole = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()

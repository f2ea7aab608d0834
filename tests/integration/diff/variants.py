"""A tiny deployment and variants that differ from it in one thing each, built for real."""

import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import gguf

from tests.support.artifacts import artifact
from tests.support.locks import sealed_text
from tests.support.program import ROOT, pih
from tests.unit.lower.gguf_file import write_gguf

PROFILES = ROOT / "profiles"
PROFILE = """
[deployment]
name = "tiny"
[model]
plugin = "llama"
weights = "file:q4.gguf"
[target]
os = "linux"
arch = "x86_64"
isa = "x86-64-v3"
memory = "256 MiB"
threads = 1
[limits]
context = 64
batch = 2
tokens = 16
kv_dtype = "bf16"
[features]
openai = true
health = true
[service]
model_name = "tiny"
[weights]
delivery = "embed"
"""
# of the profile's text, by the variant's name
EDITS = {
    "first": (),
    "isa": (("x86-64-v3", "x86-64-v4-bf16-vnni"),),
    "bf16": (("q4.gguf", "bf16.gguf"),),
    "separate": (('"embed"', '"separate"'),),
    "small": (("context = 64", "context = 32"), ("health = true", "health = false")),
    "base": (),
}
PACKAGE, VERSION, NOTE = "libexpat1", "2.5.0-1+deb12u6", "A security fix."


def write(folder: Path, name: str) -> Path:
    """The variant's profile and lock below `folder`; where its profile is."""
    place = folder / name
    place.mkdir()
    kinds = gguf.GGMLQuantizationType
    write_gguf(place / "q4.gguf")
    write_gguf(place / "bf16.gguf", matrices=kinds.BF16, embeddings=kinds.BF16)
    text = PROFILE
    for old, new in EDITS[name]:
        assert old in text
        text = text.replace(old, new)
    (place / "tiny.toml").write_text(text)
    pih("lock", "--profile", place / "tiny.toml")
    if name == "base":
        _move_package(place / "tiny.lock.json")
    return place / "tiny.toml"


def build(profile: Path) -> Path:
    """The layout of its image."""
    return Path(json.loads(pih("build", "--profile", profile, "--json").stdout)["layout"])


def _move_package(lock: Path) -> None:
    """The lock with another version of a package of the base userland, as `pih lock --upgrade base` gives."""
    newer = lock.with_name(f"{PACKAGE}_{VERSION}_amd64.deb")
    newer.write_bytes(_newer(artifact("deb", PACKAGE).read_bytes()))
    digest = json.loads(pih("store", "add", newer, "--json").stdout)[0]["sha256"]
    data = json.loads(lock.read_text())
    for item in data["artifacts"]:
        if item["name"] == PACKAGE:
            item |= {"version": VERSION, "sha256": digest, "size": newer.stat().st_size}
            item["purls"] = [f"pkg:generic/{PACKAGE}@{VERSION.replace('+', '%2B')}"]
    lock.write_text(sealed_text(json.dumps(data)))


def _newer(raw: bytes) -> bytes:
    """The package under another version, with one line more in its copyright file."""
    out, at = raw[:8], 8
    while at < len(raw):
        header, size = raw[at : at + 60], int(raw[at + 48 : at + 58])
        name, content = header[:16].decode().strip().rstrip("/"), raw[at + 60 : at + 60 + size]
        if name.endswith(".tar.xz"):
            content = lzma.compress(_edited(lzma.decompress(content)), preset=0)
        elif name.endswith(".tar.gz"):
            content = gzip.compress(_edited(gzip.decompress(content)), mtime=0)
        out += header[:48] + f"{len(content):<10}".encode() + header[58:] + content + b"\n" * (len(content) % 2)
        at += 60 + size + size % 2
    return out


def _edited(archive: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=sink, mode="w") as new:
        for entry in old:
            content = old.extractfile(entry).read() if entry.isfile() else b""
            if entry.name == "./control":
                lines = content.decode().splitlines(keepends=True)
                content = "".join(
                    f"Version: {VERSION}\n" if line[:8] == "Version:" else line for line in lines
                ).encode()
            if entry.name.endswith("/copyright"):
                content += f"{NOTE}\n".encode()
            entry.size = len(content) if entry.isfile() else entry.size
            new.addfile(entry, io.BytesIO(content))
    return sink.getvalue()

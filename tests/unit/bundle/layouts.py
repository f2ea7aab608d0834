"""Image layouts written by hand, so that each part of one can be wrong."""

import gzip
import hashlib
import io
import json
import tarfile

from pih_runtime.errors import BuildError
from pih_steps.tar import header

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
TAR = "application/vnd.oci.image.layer.v1.tar"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar(entries):
    """entries: (name, content | link target as ('->', target) | None for a folder), in order."""
    stream = io.BytesIO()
    for name, content in entries:
        data = content if isinstance(content, bytes) else b""
        stream.write(_header(name, content, len(data)) + data + bytes(-len(data) % 512))
    stream.write(bytes(1024))
    return stream.getvalue()


def _header(name, content, size):
    """As the steps write it, but for what they never do."""
    info = tarfile.TarInfo(name)
    info.size = size
    if content is None:
        return header(f"{name}/", 0o755, 0, b"5", "")
    if isinstance(content, tuple):
        info.type, info.linkname = (
            {"->": tarfile.SYMTYPE, "=": tarfile.LNKTYPE, "dev": tarfile.CHRTYPE}[content[0]],
            content[1],
        )
    try:
        if info.issym():
            return header(name, 0o777, 0, b"2", info.linkname)
        if info.isreg():
            return header(name, 0o755 if "bin/" in name else 0o644, size, b"0", "")
    except BuildError:  # too long
        pass
    return info.tobuf(tarfile.PAX_FORMAT)


def write(root, archives, *, settings=None, change=lambda _, value: value, types=None):
    """An OCI layout of these uncompressed archives. change(part, value) may alter any part before it is written."""
    blobs = root / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data):
        (blobs / digest(data).removeprefix("sha256:")).write_bytes(data)
        return {"digest": digest(data), "size": len(data)}

    types = types or [GZIP] * len(archives)
    layers = []
    for media_type, archive in zip(types, archives, strict=True):
        data = gzip.compress(archive, mtime=0) if media_type == GZIP else archive
        layers.append({"mediaType": media_type, **put(data)})
    config = change(
        "config",
        {
            "os": "linux",
            "architecture": "amd64",
            "config": settings or {},
            "rootfs": {"type": "layers", "diff_ids": [digest(archive) for archive in archives]},
        },
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, **put(json.dumps(config).encode())},
    }
    manifest = change("manifest", manifest | {"layers": layers})
    index = change(
        "index", {"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST, **put(json.dumps(manifest).encode())}]}
    )
    (root / "index.json").write_text(json.dumps(index))
    (root / "oci-layout").write_text(json.dumps(change("version", {"imageLayoutVersion": "1.0.0"})))
    return root

"""Package registries on this host, small and made up, for the real clients of each kind."""

import gzip
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from pih.lock import Artifact

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this host has no apt")
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="this host has no npm")
POOL = "pool/main/t/tiny/tiny_1.0-1+b1_amd64.deb"
DEB_PURL = "pkg:deb/debian/tiny@1.0-1%2Bb1?arch=amd64&path=pool/main/t/tiny/tiny_1.0-1%2Bb1_amd64.deb"
REVISION = "0123456789012345678901234567890123456789"
BIG = random.Random(0).randbytes(4 << 20)


def artifact(name, kind, data, purl, version="1.0"):
    return Artifact(name, version, kind, hashlib.sha256(data).hexdigest(), len(data), (purl,), "MIT", ())


@contextmanager
def serving(answers, asked=None):
    """An HTTP server on loopback. answers: path → bytes, or (headers, bytes); its address is yielded.

    asked: a list that is told (method, path) of every request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if asked is not None:
                asked.append((self.command, unquote(self.path)))
            found = answers.get(unquote(self.path))
            headers, body = found if isinstance(found, tuple) else ({}, found)
            self.send_response(200 if body is not None else 404)
            body = body if body is not None else b"not here"
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def quiet_environment(tmp_path):
    """The host's environment without its package settings: only the registries made here are asked."""
    kept = {
        key: value for key, value in os.environ.items() if not key.lower().startswith(("pip_", "npm_", "hf_", "pih_"))
    }
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    proxies = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")
    return {
        **kept,
        **proxies,
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "HF_HOME": str(home),
    }


def wheel(name="tiny", version="1.0", licence="License-Expression: MIT", tag="py3-none-any", text="x = 1\n"):
    """(file name, bytes)."""
    stream = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{licence}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-{tag}.whl", stream.getvalue()


def npm_package(name="@scope/tiny", version="1.0.0", content=b"{}"):
    """Bytes of the package's archive."""
    manifest = json.dumps({"name": name, "version": version, "license": "MIT"}).encode()
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in {"package/package.json": manifest, "package/data.json": content}.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def npm_answers(address, name, version, archive):
    """What a registry at `address` says about one package."""
    tarball = f"/{name}/-/tiny-{version}.tgz"
    entry = {
        "name": name,
        "version": version,
        "dist": {"tarball": address + tarball, "shasum": hashlib.sha1(archive).hexdigest()},
    }
    document = {"name": name, "dist-tags": {"latest": version}, "versions": {version: entry}}
    return {f"/{name}": ({"Content-Type": "application/json"}, json.dumps(document).encode()), tarball: archive}


def deb(name="tiny", version="1.0-1+b1", arch="amd64", data=b"content"):
    """Bytes of a .deb with one file."""

    def tarball(files):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for path, content in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return stream.getvalue()

    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: m <m@example.org>\nDescription: d\n"
    )
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": tarball({"./control": control.encode()}),
        "data.tar.gz": tarball({f"./usr/share/{name}": data}),
    }
    archive = b"!<arch>\n"
    for part, content in parts.items():
        head = f"{part:16}{0:<12}{0:<6}{0:<6}{'100644':8}{len(content):<10}`\n".encode()
        archive += head + content + b"\n" * (len(content) % 2)
    return archive


def debian_archive(root: Path, path: str, data: bytes, name="tiny", version="1.0-1+b1", arch="amd64"):
    """An archive with one package on disk; its folder serves file: and http: sources."""
    (root / path).parent.mkdir(parents=True)
    (root / path).write_bytes(data)
    packages = (
        f"Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: m <m@example.org>\nDescription: d\n"
        f"Filename: {path}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    ).encode()
    folder = root / "dists/stable/main/binary-amd64"
    folder.mkdir(parents=True)
    (folder / "Packages").write_bytes(packages)
    line = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-amd64/Packages\n"
    release = f"Origin: tiny\nSuite: stable\nCodename: stable\nArchitectures: amd64\nComponents: main\nSHA256:\n{line}"
    (root / "dists/stable/Release").write_text(release)


def apt_settings(folder: Path, source: str):
    """Environment for an apt of the tests' own: its lists, caches and sources are below `folder`."""
    for name in (
        "state/lists/partial",
        "cache/archives/partial",
        "etc/preferences.d",
        "etc/apt.conf.d",
        "etc/trusted.gpg.d",
    ):
        (folder / name).mkdir(parents=True)
    (folder / "state/status").touch()
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes arch=amd64] {source} stable main\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc": folder / "etc",
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": folder / "etc/none",
        "APT::Architecture": "amd64",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",  # for a namespace that has no other
    }
    (folder / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return {"APT_CONFIG": str(folder / "apt.conf")}


def the_wheel(tmp_path, **options):
    """A folder with a wheel, as pip's --find-links; and the artifact."""
    name, data = wheel(**options)
    folder = tmp_path / "links"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return {"PIP_FIND_LINKS": str(folder)}, artifact("tiny", "wheel", data, f"pkg:pypi/tiny@1.0?file_name={name}")


@contextmanager
def debian_server(kind, root):
    if kind == "file":
        yield f"file:{root}"
        return

    class Files(dict):
        def get(self, path, default=None):
            file = root / path.lstrip("/")
            return file.read_bytes() if file.is_file() else default

    with serving(Files()) as address:
        yield address


@contextmanager
def npm_registry(tmp_path, archive):
    answers = {}
    with serving(answers) as address:
        answers.update(npm_answers(address, "@scope/tiny", "1.0.0", archive))
        yield {
            "npm_config_registry": address,
            "npm_config_cache": str(tmp_path / "npm"),
            "npm_config_fetch_retries": "0",
        }


@contextmanager
def hugging_face(data, card=None, linked=None, asked=None):
    """linked: what the hub names for a file in LFS: (ETag, size)."""
    headers = {"ETag": '"0123"', "X-Repo-Commit": REVISION}
    lfs = {"X-Linked-Etag": f'"{linked[0]}"', "X-Linked-Size": str(linked[1])} if linked else {}
    files = dict.fromkeys(("model.safetensors", "tokenizer.json"), (headers | lfs, data)) | (
        {} if card is None else {"README.md": (headers, card)}
    )
    answers = {f"/owner/tiny/resolve/{REVISION}/{name}": file for name, file in files.items()}
    with serving(answers, asked) as address:
        yield {"HF_ENDPOINT": address}


def left_behind(store):
    """What fetching into this store has not brought to its end."""
    return [*(store.root / "tmp").iterdir()]

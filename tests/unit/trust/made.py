"""Plugins, keys and catalogs in a folder, as publishers make them."""

import hashlib
import json
from pathlib import Path

import attrs
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pih import profile, trust
from pih.resolve import outside
from pih.trust import index, keyring, keys, publish

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text().replace("file:../models", f"file:{ROOT}/models")
MANIFEST = """\
id = "backend/npu"
version = "{version}"
kind = "backend"
abi = {abi}
summary = "a made-up accelerator"

[provides]
"backend.device" = "1.0"

[requires]
"platform.host" = ">=1.0,<2"
"storage.weights" = ">=1.0,<2"
"kernels.pack" = ">=1.0,<2"

[runtime]
package = "pih_backend_npu"
entry = "pih_backend_npu:start"
host_bytes = 1000

[permissions]
devices = ["/dev/npu0"]

[[tested]]
version = "{version}"
pih = "{pih}"
abi = {abi}
"""


def plugin(folder, version="0.1.0", pih=">=0.1,<0.2", abi=1, text=MANIFEST):
    """A plugin's folder."""
    (folder / "pih_backend_npu").mkdir(parents=True)
    (folder / "pih_backend_npu" / "__init__.py").write_text("def start(context):\n    return {}\n")
    (folder / "plugin.toml").write_text(text.format(version=version, pih=pih, abi=abi))
    return folder


def key(folder, name="key"):
    """A publisher's private key, the same each time, so that messages can be compared whole."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.pem").write_bytes(private.private_bytes(*form))
    return private


def believing(*privates, state="trusted", note=""):
    """A keyring with these private keys' public halves."""
    entries = [(keys.public_of(item), keys.fingerprint(keys.public_of(item))) for item in privates]
    return keyring.Keyring(keys=tuple(keyring.Key(name, public, "vendor", state, note) for public, name in entries))


def vendor(folder, private, *releases):
    """A signed catalog with these releases of the plugin: {folder name: keywords of `plugin`}."""
    folder.mkdir()
    for name, about in releases:
        plugin(folder / name, **about)
    publish.sign_catalog(folder, "vendor", private)
    return folder


def quoted(text):
    """As JSON has it."""
    return json.dumps(text)


def withdraw(folder, private, reason, version=""):
    """Let a catalog's publisher withdraw a version, or all."""
    listed, _ = index.read(folder)
    entries = (attrs.evolve(e, yanked=reason) if version in ("", e.version) else e for e in listed.plugins)
    (folder / index.INDEX).write_text(index.text(attrs.evolve(listed, plugins=tuple(entries))))
    publish.sign_catalog(folder, "", private)


def intent(folder, entries, backend="npu"):
    """A profile in `folder` whose backend is the plugin, with these [[plugins]] tables."""
    text = TEXT.replace('plugin = "cpu"', f'plugin = "{backend}"')
    if f'plugin = "{backend}"' not in text:
        text += f'\n[backend]\nplugin = "{backend}"\n'
    return profile.parse((text + entries).encode(), folder / "p.toml")


def catalog_of(folder, entries, ring=None, lock=None):
    """The catalog that this profile gets with this keyring, beside the lock before."""
    environment = {"XDG_CONFIG_HOME": str(folder / "config")}
    keyring.save(ring or keyring.Keyring(), environment)
    return trust.load(ROOT, intent(folder, entries), environment).beside(outside.held(lock))

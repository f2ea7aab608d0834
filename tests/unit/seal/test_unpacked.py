"""Forms of a bundle that keep no seal: an unpacked root, and an image whose layers somebody compressed anew."""

import datetime as dt
import gzip
import hashlib
import json
import os
import shutil

import attrs
import pytest

from pih.build.store import open_store
from pih.bundle import layout as layouts
from pih.bundle.unpack import unpack
from pih.seal import attach, intact, policy, unpacked, verify
from pih.trust import keys
from pih_runtime.errors import PihError, SealError
from tests.support import bundles

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def root(made, tmp_path):
    """The image unpacked, in a folder of the test's own."""
    kept = unpack(layouts.read(made / "sealed"), open_store(tmp_path / "store"))
    return shutil.copytree(kept, tmp_path / "root", symlinks=True)


def key(made, name="a"):
    return policy.of_keys((made / f"{name}.pem.pub",))


def refused(root, what, where=""):
    with pytest.raises(SealError, match=what) as failure:
        unpacked.read(root)
    assert where in failure.value.where


def test_files_lead_to_the_configuration_that_the_layout_has(made, root):
    found, shipped = unpacked.read(root), intact.read(made / "layout")
    assert found.files == shipped.files
    assert found.sources == shipped.sources
    assert found.layout.config_digest == shipped.layout.config_digest
    assert [layer.diff_id for layer in found.layout.layers] == [layer.diff_id for layer in shipped.layout.layers]
    assert found.layout.digest == ""


def test_its_seal_is_the_layouts(made, root):
    found = verify.kept(unpacked.read(root), "root")
    with pytest.raises(SealError, match="signatures travel with the image's layout") as failure:
        verify.vouched(found, key(made), NOW)
    assert "--seal" in failure.value.fix
    under = verify.under(found, made / "sealed")
    assert verify.vouched(under, key(made), NOW).vouched == key(made).keys
    with pytest.raises(SealError, match="did not sign"):
        verify.vouched(under, key(made, "b"), NOW)


def test_the_layers_of_the_seal_are_not_needed(made, root, sealed):
    for layer in layouts.read(sealed).layers:
        layouts.blob_path(sealed, layer.digest).write_bytes(b"")
    assert verify.vouched(verify.under(verify.kept(unpacked.read(root), "root"), sealed), key(made), NOW).vouched


def test_a_layout_without_a_seal_is_none(made, root):
    with pytest.raises(SealError, match="no seal either"):
        verify.under(verify.kept(unpacked.read(root), "root"), made / "layout")


def test_a_seal_of_another_image(made, root, tmp_path):
    def other(step, files):
        return files[:-1] if step == "base" else files  # without a copyright

    attach.seal(bundles.write(tmp_path / "other", change=other), tmp_path / "seal", [keys.load_private(made / "a.pem")])
    with pytest.raises(SealError, match="the seal is of another image"):
        verify.under(verify.kept(unpacked.read(root), "root"), tmp_path / "seal")


def test_what_the_seal_says_is_checked(made, root, sealed):
    """A flipped byte in whatever is attached, in the manifest or the configuration."""
    found = verify.kept(unpacked.read(root), "root")
    layers = {layer.digest.removeprefix("sha256:") for layer in layouts.read(sealed).layers}
    small = [path for path in (sealed / "blobs/sha256").iterdir() if path.name not in layers]
    assert len(small) >= 12
    for path in small:
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        if data == b"{}":  # the empty configuration of what is attached says nothing
            continue
        with pytest.raises(PihError):
            verify.vouched(verify.under(found, sealed), key(made), NOW)
        path.write_bytes(data)


def test_every_file_is_read(root):
    for path in [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]:
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(PihError):
            unpacked.read(root)
        path.write_bytes(data)
    assert unpacked.read(root)


def test_a_list_that_was_changed_with_its_file_has_another_configuration(made, root):
    """Whoever can change a bundle can make everything in it fit: but for the seal."""
    place, listing = root / "pih/lib/jinja2/__init__.pyc", root / "pih/bundle.json"
    before, after = (hashlib.sha256(data).hexdigest() for data in (place.read_bytes(), b"other"))
    place.write_bytes(b"other")
    listing.write_text(listing.read_text().replace(before, after))
    found = verify.kept(unpacked.read(root), "root")
    with pytest.raises(SealError, match="the seal is of another image"):
        verify.under(found, made / "sealed")


def test_what_is_missing_extra_or_of_another_kind(root):
    place = root / "pih/lib/jinja2/__init__.pyc"
    data = place.read_bytes()
    place.unlink()
    refused(root, "/pih/lib/jinja2/__init__.pyc is listed")
    place.symlink_to("/etc/passwd")
    refused(root, "of another kind", str(place))
    place.unlink()
    place.mkdir()
    refused(root, "/pih/lib/jinja2/__init__.pyc is listed")
    place.rmdir()
    place.write_bytes(data)
    link = root / "usr/bin/python3"
    link.unlink()
    link.symlink_to("/usr/bin/python3")
    refused(root, "of another kind", str(link))
    link.unlink()
    link.symlink_to("python3.11")
    (root / "usr/bin/more").write_bytes(b"")
    refused(root, "not listed", "usr/bin/more")


@pytest.mark.parametrize("mode", [0o4755, 0o2644, 0o777, 0o666, 0o600, 0o1644])
def test_a_file_has_a_mode_that_an_image_gives(root, mode):
    place = root / "pih/lib/jinja2/__init__.pyc"
    place.chmod(mode)
    refused(root, f"has mode {mode:o}", str(place))


@pytest.mark.parametrize("mode", [0o777, 0o700, 0o2755, 0o1777])
@pytest.mark.parametrize("name", ["", "pih", "pih/lib/jinja2"])
def test_a_folder_has_a_mode_that_an_image_gives(root, name, mode):
    (root / name).chmod(mode)
    refused(root, f"has mode {mode:o}, not 755", str(root / name))
    (root / name).chmod(0o755)
    (root / "tmp").chmod(0o1777)  # as in the image
    assert unpacked.read(root)


def test_no_file_has_capabilities(root):
    place = root / "pih/lib/jinja2/__init__.pyc"
    try:
        os.setxattr(place, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    except OSError as problem:
        pytest.skip(f"no capability can be given to a file here: {problem}")
    refused(root, "has capabilities of its own", str(place))


@pytest.mark.parametrize("name", ["new", "pih/new", "pih/new/deep", "dev/new"])
def test_a_folder_that_holds_nothing(root, name):
    (root / name).mkdir(parents=True)
    refused(root, "holds nothing of the bundle", "/new")


def test_a_folder_of_the_image_that_leads_elsewhere(root, tmp_path):
    (root / "pih/lib").rename(tmp_path / "lib")
    (root / "pih/lib").symlink_to(tmp_path / "lib")
    refused(root, "not listed", "pih/lib")


def test_who_may_run_a_file_is_part_of_the_image(made, root):
    (root / "pih/lib/jinja2/__init__.pyc").chmod(0o755)
    with pytest.raises(SealError, match="the seal is of another image"):
        verify.under(verify.kept(unpacked.read(root), "root"), made / "sealed")


def test_weights_that_were_delivered_apart_and_places_to_mount_on(tmp_path):
    weights = attrs.evolve(bundles.LOCK.weights, delivery="separate")
    first, *rest = bundles.LOCK.plugins
    granted = attrs.evolve(first, permissions=attrs.evolve(first.permissions, paths=("/usr/lib/libdevice.so.*",)))
    lock = attrs.evolve(bundles.LOCK, weights=weights, plugins=(granted, *rest))
    root = unpack(layouts.read(bundles.write(tmp_path / "work", lock=lock)), open_store(tmp_path / "store"))
    for name in ("weights.safetensors", "weights.digests"):
        (root / "pih/weights" / name).write_bytes(b"any")
    (root / "usr/lib/libdevice.so.1").touch()
    for name in ("dev", "proc", "tmp"):
        (root / name).mkdir(exist_ok=True)
    assert [layer.diff_id for layer in unpacked.read(root).layout.layers]
    (root / "usr/lib/libdevice.so.1").write_bytes(b"code")
    refused(root, "not listed", "libdevice.so.1")


def test_layers_that_are_compressed_otherwise_are_the_same_image(made, layout):
    """As engines' stores and registries give them."""
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads(bundles.blob(layout, index["manifests"][0]))

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        (layout / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    for layer in manifest["layers"]:
        if layer["mediaType"] == layouts.LAYER_GZIP:
            layer.update(put(gzip.compress(gzip.decompress(bundles.blob(layout, layer)), 1)))
    index["manifests"][0] |= put(json.dumps(manifest).encode())
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(SealError, match="manifest"):
        verify.whole(layout)
    found = verify.kept(intact.of_layout(attrs.evolve(layouts.read(layout), digest="")), "podman:x")
    assert verify.vouched(verify.under(found, made / "sealed"), key(made), NOW).vouched

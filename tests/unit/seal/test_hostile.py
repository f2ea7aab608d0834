"""Bundles made to deceive: everything fits its digest, and something is not as it should be."""

import hashlib
import io
import json
import shutil
import tarfile

import attrs
import pytest

from pih.bundle import entries
from pih.bundle import layout as layout_of
from pih.seal import attach, dsse, referrers, verify
from pih_runtime.errors import SealError
from pih_steps import layer, tar
from pih_steps.oci import canonical
from tests.support import bundles
from tests.unit.bundle import layouts


def block(**fields):
    """A tar header with fields that ours does not have; the sum is right."""
    info = tarfile.TarInfo("a")
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.USTAR_FORMAT)


HEADERS = {
    "a time": block(mtime=1),
    "an owner": block(uid=7),
    "a group": block(gid=7),
    "a user's name": block(uname="root"),
    "a hard link": block(type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": block(type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "a pipe": block(type=tarfile.FIFOTYPE),
    "a sparse file": block(type=tarfile.GNUTYPE_SPARSE),
    "a long name": block(type=tarfile.GNUTYPE_LONGNAME, size=10),
    "a PAX header": block(type=tarfile.XHDTYPE, size=10),
    "a file with a target": block(linkname="b"),
    "a link without": block(type=tarfile.SYMTYPE),
    "a folder with a size": block(type=tarfile.DIRTYPE, size=512),
    "a parent": tar.header("a/../../b", 0o644, 0, b"0", ""),
    "an absolute path": tar.header("/etc/passwd", 0o644, 0, b"0", ""),
    "a dot": tar.header("./a", 0o644, 0, b"0", ""),
    "the root": tar.header("./", 0o755, 0, b"5", ""),
    "no name": tar.header("", 0o644, 0, b"0", ""),
    "another sum": tar.header("a", 0o644, 0, b"0", "")[:148] + b"0000000\0" + tar.header("a", 0o644, 0, b"0", "")[156:],
    "no sum": b"a" + bytes(511),
    "a negative size": tar.header("a", 0o644, 0, b"0", "")[:124] + b"\xff" * 12 + bytes(376),
    "a huge size": tar.header("a", 0o644, 1 << 80, b"0", ""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_no_bundle_has(name):
    assert len(HEADERS[name]) == 512
    with pytest.raises(entries.NotCanonicalError):
        entries.parsed(HEADERS[name])


def read(data):
    reader = entries.Reader(io.BytesIO(data))
    return [(entry.path, b"".join(reader.content())) for entry in reader]


def written(*files):
    sink = io.BytesIO()
    tar.write(sink, [tar.Entry(path, data) for path, data in files])
    return sink.getvalue()


def test_an_archive_of_ours_is_read_as_it_was_written():
    files = [("a/b", b"x" * 700), ("a/c", b""), ("d", bytes(range(256)) * 9000), ("é" * 40 + "/" + "z" * 90, b"1")]
    assert [(path, data) for path, data in read(written(*files)) if data or path == "a/c"] == sorted(files)


BROKEN = {
    "nothing": b"",
    "no end": written(("a", b"x"))[:-1024],
    "half an end": written(("a", b"x"))[:-512],
    "more after the end": written(("a", b"x")) + bytes(512),
    "a file cut short": written(("a", b"x" * 2000))[:1000],
    "something in the padding": written(("a", b"x"))[:700] + b"!" + written(("a", b"x"))[701:],
    "twice": written(("a", b"x"))[:-1024] + written(("a", b"y")),
    "out of order": written(("b", b"x"))[:-1024] + written(("a", b"y")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_archive_that_no_step_writes(name):
    with pytest.raises(entries.NotCanonicalError):
        read(BROKEN[name])


def added(step, file):
    return lambda where, files: [*files, file] if where == step else files


def link(path, target):
    return layer.File(tar.Entry(path, target=target), "libc6", "x")


CHANGED = {
    "leaves the root": added("base", link("usr/lib/x", "../../../etc/passwd")),
    "leads nowhere|leaves the root": added("base", link("x", "..")),
    "which the lock does not name": added("app", layer.File(tar.Entry("x", b""), "evil", "x")),
    "has another kind, mode or size": added("app", layer.File(tar.Entry("x", b"", mode=0o4755), "pih", "x")),
    "it has no file of surface/openai": lambda _step, files: [
        file for file in files if file.component != "surface/openai"
    ],
}


@pytest.mark.parametrize("said", CHANGED)
def test_an_image_that_is_not_one_of_its_lock(tmp_path, said):
    layout = bundles.write(tmp_path, change=CHANGED[said])
    with pytest.raises(SealError, match=said):
        verify.whole(layout)


def test_weights_where_the_lock_has_none(tmp_path):
    layout = bundles.write(
        tmp_path / "x", lock=attrs.evolve(bundles.LOCK, weights=attrs.evolve(bundles.LOCK.weights, delivery="separate"))
    )
    verify.whole(layout)
    embedded = layer.File(tar.Entry("pih/weights/weights.safetensors", b"x"), "weights", "x")
    odd = bundles.write(
        tmp_path / "y",
        lock=attrs.evolve(bundles.LOCK, weights=attrs.evolve(bundles.LOCK.weights, delivery="separate")),
        change=added("app", embedded),
    )
    with pytest.raises(SealError, match="of the delivery of weights"):
        verify.whole(odd)


def put(layout, raw):
    """A descriptor's digest and size of a new blob."""
    name = hashlib.sha256(raw).hexdigest()
    (layout / "blobs/sha256" / name).write_bytes(raw)
    return {"digest": f"sha256:{name}", "size": len(raw)}


def changed(layout, change):
    """The layout with manifest and configuration changed; all digests are right."""
    index = bundles.index(layout)
    manifest = json.loads(bundles.blob(layout, index["manifests"][0]))
    config = json.loads(bundles.blob(layout, manifest["config"]))
    change(manifest, config)
    manifest["config"] |= put(layout, canonical(config))
    index["manifests"][0] |= put(layout, canonical(manifest))
    (layout / "index.json").chmod(0o644)
    (layout / "index.json").write_bytes(canonical(index))
    return layout


def rewritten(layout, edit):
    """The layout with the layer of the deployment's own files as `edit` gives its archive."""

    def change(manifest, config):
        with tarfile.open(fileobj=io.BytesIO(bundles.blob(layout, manifest["layers"][3]))) as archived:
            manifest["layers"][3] = {"mediaType": layouts.TAR, **put(layout, edit(archived))}
        config["rootfs"]["diff_ids"][3] = manifest["layers"][3]["digest"]

    return changed(layout, change)


def edited(change):
    """The archive with its files (path → bytes) changed."""

    def edit(archived):
        held = {member.name: archived.extractfile(member).read() for member in archived if member.isfile()}
        return written(*change(held).items())

    return edit


def listing(change):
    def edit(held):
        data = json.loads(held["pih/bundle.json"])
        change(data)
        return held | {"pih/bundle.json": json.dumps(data).encode()}

    return edited(edit)


LISTS = {
    "/pih/extra is not listed": edited(lambda held: held | {"pih/extra": b"x"}),
    "/pih/kernels/pack.so is listed in .*, and missing": edited(
        lambda held: {path: data for path, data in held.items() if not path.endswith("pack.so")}
    ),
    "/pih/kernels/pack.so has other bytes": edited(lambda held: held | {"pih/kernels/pack.so": b"Kernels"}),
    "/pih/kernels/pack.so has another kind, mode or size": edited(lambda held: held | {"pih/kernels/pack.so": b"k"}),
    "it lists a file twice": listing(lambda data: data["files"].append(data["files"][0])),
    "it is the bundle of 'other'": listing(lambda data: data.update(name="other")),
    "sources are not those of its lock": listing(lambda data: data["sources"].popitem()),
    "its sources are not those": listing(lambda data: data["sources"].update(dict.fromkeys(data["sources"], "1"))),
    "its sources are not": listing(lambda data: data.update(sources=[])),
    "not the lock that the bundle was built from": listing(lambda data: data.update(lock="sha256:" + "0" * 64)),
}


@pytest.mark.parametrize("said", LISTS)
def test_an_image_that_is_not_what_it_lists(layout, said):
    with pytest.raises(SealError, match=said):
        verify.whole(rewritten(layout, LISTS[said]))


def test_a_configuration_that_no_bundle_has(layout):
    def change(_, config):
        config["config"]["User"] = "0:0"

    with pytest.raises(SealError, match=r"configuration .* is not that of a bundle of this lock"):
        verify.whole(changed(layout, change))


def test_a_manifest_that_no_bundle_has(layout):
    def change(manifest, _):
        manifest["annotations"]["org.opencontainers.image.authors"] = "somebody"

    with pytest.raises(SealError, match=r"manifest .* is not that of a bundle of this lock"):
        verify.whole(changed(layout, change))


def test_numbers_that_are_none(layout):
    for number in ("Infinity", "NaN", "-1", "1e400", "1" * 5000, '"1"', "[]", "null"):
        data = json.dumps(bundles.index(layout)).replace('"size": ', f'"size": {number}, "x": ')
        (layout / "index.json").chmod(0o644)
        (layout / "index.json").write_text(data)
        with pytest.raises(SealError):
            verify.whole(layout)
        (layout / "index.json").write_text(data.replace(f'"size": {number}, "x": ', '"size": '))
    verified = listing(lambda data: data["files"][0].update(size=float("inf")))
    with pytest.raises(SealError, match="Infinity is not a JSON number"):
        verify.whole(rewritten(layout, verified))


def resealed(layout, documents):
    """The layout with other documents attached, all digests right."""
    found = verify.whole(layout)
    entry = json.loads((layout / "index.json").read_bytes())["manifests"][0]
    referrers.write(layout, entry, found.image.blob, found.documents | documents)
    return layout


def spdx(change, layout):
    data = json.loads(bundles.attached(layout)[referrers.SPDX])
    change(data)
    return {referrers.SPDX: canonical(data)}


SBOMS = {
    "does not list /pih/plan.json": lambda data: data.update(
        files=[file for file in data["files"] if file["fileName"] != "./pih/plan.json"]
    ),
    "lists /etc/shadow, which the image has not": lambda data: data["files"].append(
        {**data["files"][0], "fileName": "./etc/shadow"}
    ),
    "has other digests of": lambda data: data["files"][0]["checksums"][1].update(checksumValue="0" * 64),
    "lists something twice": lambda data: data["files"].append(data["files"][0]),
    "does not list libc6": lambda data: data.update(packages=[p for p in data["packages"] if p["name"] != "libc6"]),
    "lists evil 1": lambda data: data["packages"].append({**data["packages"][1], "name": "evil", "versionInfo": "1"}),
    "cannot be read": lambda data: data.update(files=[1]),
    "is not about the attached": lambda data: data.update(comment="a word more"),
}


@pytest.mark.parametrize("said", SBOMS)
def test_an_sbom_that_says_something_else(sealed, said):
    with pytest.raises(SealError, match=said):
        verify.whole(resealed(sealed, spdx(SBOMS[said], sealed)))


def provenance(change, layout):
    kind = "application/vnd.in-toto.provenance+dsse"
    envelope = dsse.parse(bundles.attached(layout)[kind])
    said = envelope.statement
    change(said)
    return {kind: dsse.to_json(dsse.Envelope(canonical(said), envelope.signatures))}


STATEMENTS = {
    "its resolvedDependencies is not that": lambda said: said["predicate"]["buildDefinition"][
        "resolvedDependencies"
    ].pop(),
    "its externalParameters is not that": lambda said: said["predicate"]["buildDefinition"]["externalParameters"][
        "lock"
    ]["digest"].update(sha256="0" * 64),
    "it is not a statement about this image": lambda said: said["subject"][0]["digest"].update(sha256="0" * 64),
    "it states nothing": lambda said: said.update(predicate=[]),
    "it has no buildDefinition": lambda said: said["predicate"].pop("buildDefinition"),
}


@pytest.mark.parametrize("said", STATEMENTS)
def test_provenance_that_says_something_else(sealed, said):
    with pytest.raises(SealError, match=said):
        verify.whole(resealed(sealed, provenance(STATEMENTS[said], sealed)))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"payload": 1}', b"\xff", b"[" * 100_000, b'{"payload":"e30=","signatures":[1]}']
)
def test_what_is_no_envelope(sealed, data):
    with pytest.raises(SealError, match="not a DSSE envelope"):
        verify.whole(resealed(sealed, {"application/vnd.in-toto.provenance+dsse": data}))


def test_an_envelope_in_another_spelling(sealed):
    kind = "application/vnd.in-toto.provenance+dsse"
    loose = json.dumps(json.loads(bundles.attached(sealed)[kind])).encode()
    with pytest.raises(SealError, match="not in canonical form"):
        verify.whole(resealed(sealed, {kind: loose}))


def test_the_seal_of_another_bundle(sealed, tmp_path):
    """Documents of one image, on another that differs in one file."""
    change = added("app", layer.File(tar.Entry("x", b"x"), "pih", "x"))
    other = bundles.write(tmp_path / "other", change=change)
    attach.seal(other, tmp_path / "theirs", [])
    with pytest.raises(SealError, match=r"the SPDX document (lists /x|has other digests of)"):
        verify.whole(resealed(sealed, bundles.attached(tmp_path / "theirs")))


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 200_000, b"[" * 900 + b"]" * 900])
def test_documents_that_are_nested_too_deeply(sealed, data, tmp_path):
    for kind in sorted(referrers.TYPES):
        copy = shutil.copytree(sealed, tmp_path / kind.replace("/", "-"))
        with pytest.raises(SealError, match=r"is not right|no manifest"):
            verify.whole(resealed(copy, {kind: data}))


@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
def test_a_layout_that_is_nested_too_deeply(layout, name):
    (layout / name).chmod(0o644)
    (layout / name).write_bytes(b"[" * 200_000)
    with pytest.raises(SealError, match="not JSON: nested too deeply"):
        layout_of.read(layout)

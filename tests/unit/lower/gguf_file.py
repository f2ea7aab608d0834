"""A small GGUF file with a tokenizer, for tests that read one."""

from __future__ import annotations

import gguf
import numpy as np

from tests.unit.lower.made import llama_tensors

LETTERS = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
METADATA = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|end|>", "<tool>", *LETTERS, "Ġt", "he", "Ġthe", "12", "ĠĠ"],
    "tokenizer.ggml.token_type": [3, 4] + [1] * (len(LETTERS) + 5),
    "tokenizer.ggml.merges": ["Ġ t", "h e", "Ġt he", "1 2", "Ġ Ġ"],
    "tokenizer.ggml.eos_token_id": 0,
}
FIGURES = {"head_count": 4, "head_count_kv": 2, "layer_norm_rms_eps": 1e-5, "block_count": 2, "context_length": 64,
           "embedding_length": 64, "feed_forward_length": 96}  # fmt: skip
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
TOKENS = ["<|end|>", "<tool>", *METADATA["tokenizer.ggml.tokens"][2:95], "12"]
TEMPLATE = "{{ messages }}"


def write_gguf(path, *, matrices=gguf.GGMLQuantizationType.Q4_1, embeddings=gguf.GGMLQuantizationType.Q8_0):
    """The model that CONFIG describes, with a vocabulary of 96."""
    rng = np.random.default_rng(2)
    writer = gguf.GGUFWriter(path, "llama")
    for figure, value in FIGURES.items():
        getattr(writer, f"add_{figure}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 4] + [1] * 94)
    writer.add_token_merges(["1 2"])
    writer.add_chat_template(TEMPLATE)
    writer.add_eos_token_id(0)
    for name, tensor in llama_tensors().items():
        values = rng.standard_normal(tensor.shape).astype(np.float32)
        if "embed" in name:
            values = np.concatenate([values, values])
        stored = f"{NAMES.get_name(name.removesuffix('.weight'))}.weight"
        kind = embeddings if "embed" in name else matrices
        if values.ndim == 1:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

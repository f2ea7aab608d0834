"""Models and outside truth, each made once a session."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pih_steps.lower import files, sources
from pih_steps.lower.tokenizer import tokenizer_json
from tests.truth import models

PASSAGE = models.ROOT / "tests/truth/passage.txt"


@pytest.fixture(scope="session")
def smollm2():
    """The real model: checkpoint, tokenizer, 500 ids of a text, and transformers' logits after each."""
    import json

    import tokenizers

    source, artifacts = models.smollm2_source()
    with sources.opened(source, artifacts, {}) as checkpoint, files.on_disk(source["file"], artifacts, {}) as path:
        metadata = sources.read_gguf(source["file"], artifacts, {}).metadata
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(metadata, "gguf")))
        ids = tokenizer.encode(PASSAGE.read_text(), add_special_tokens=False).ids[:500]
        assert len(ids) == 500
        truth = models.reference_logits(models.transformers_of_gguf(path), ids)
        yield SimpleNamespace(
            checkpoint=checkpoint,
            graph=models.graph_of("llama"),
            tokenizer=tokenizer,
            metadata=metadata,
            ids=ids,
            truth=truth,
        )


@pytest.fixture(scope="session")
def gpu(tmp_path_factory):
    """Where the software GPU and its kernels lie: one folder, since a process has one driver that reads it once."""
    return tmp_path_factory.mktemp("simgpu")


@pytest.fixture(scope="session")
def tiny():
    """A small seeded Qwen3 and transformers' logits over made-up ids."""
    checkpoint = models.qwen3_checkpoint(models.TINY_QWEN3)
    ids = [int(token) for token in np.random.default_rng(3).integers(0, 512, 100)]
    truth = models.reference_logits(models.transformers_of(checkpoint), ids)
    return SimpleNamespace(checkpoint=checkpoint, graph=models.graph_of("qwen3"), ids=ids, truth=truth)


@pytest.fixture(scope="session", params=["half", "adjacent"])
def tiny_llama(request):
    """A small seeded Llama, as Hugging Face or as GGUF orders the rows of q and k."""
    checkpoint = models.llama_checkpoint(models.TINY_LLAMA, request.param)
    ids = [int(token) for token in np.random.default_rng(4).integers(0, 512, 100)]
    truth = models.reference_logits(models.transformers_of(models.llama_checkpoint(models.TINY_LLAMA, "half")), ids)
    return SimpleNamespace(checkpoint=checkpoint, graph=models.graph_of("llama"), ids=ids, truth=truth)

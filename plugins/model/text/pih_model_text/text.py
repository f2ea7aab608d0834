"""Encoding, chat prompts, and streams of text over one tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pih_model_text.stream import DecodeStream
from pih_model_text.template import ChatTemplate
from pih_runtime.errors import WorkerError


@dataclass(frozen=True, slots=True)
class ModelText:
    """Serves model.text. bos: ids put before a plain prompt; a chat template writes its own."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    stop_ids: frozenset[int]
    bos: list[int]
    defaults: Mapping[str, Any]

    def encode(self, text: str) -> list[int]:
        """Ids of a plain prompt."""
        return [*self.bos, *self.tokenizer.encode(text, add_special_tokens=False).ids]

    def stream(self) -> DecodeStream:
        """A stream for one answer; special tokens give no text."""
        return DecodeStream(self.tokenizer.decode)

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[int]:
        """Ids of the template's text; ValueError with the template's own words where it refuses."""
        if self.template is None:
            raise ValueError("this model has no chat template; use completions")
        return list(self.tokenizer.encode(self.template.render(messages, options), add_special_tokens=False).ids)


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer without truncation and padding, whatever its file says: every id counts."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as problem:  # the library raises nothing narrower
        raise WorkerError(f"not a tokenizer: {problem}", where=str(path), fix="build the bundle again") from problem
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer

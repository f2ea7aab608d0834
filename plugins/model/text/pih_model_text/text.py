"""Encoding, chat prompts, and streams of text over one tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pih_model_text.stream import DecodeStream
from pih_model_text.template import ChatTemplate
from pih_runtime.contracts import TooLongError
from pih_runtime.errors import WorkerError

# Characters. Encoding takes time and memory by them, so a text that has more is counted piece by piece first.
PIECE = 1 << 14
# Ids. A cut changes those around it: where pieces have more than this more each, so has the whole.
CUT = 64


@dataclass(frozen=True, slots=True)
class ModelText:
    """Serves model.text. bos: ids put before a plain prompt; a chat template writes its own."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    stop_ids: frozenset[int]
    bos: list[int]
    defaults: Mapping[str, Any]

    def encode(self, text: str, most: int) -> list[int]:
        """Ids of a plain prompt; TooLongError where there are surely more than `most`."""
        return [*self.bos, *self._bounded(text, most)]

    def stream(self) -> DecodeStream:
        """A stream for one answer; special tokens give no text."""
        return DecodeStream(self.tokenizer.decode)

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any], most: int) -> list[int]:
        """Ids of the template's text, as `encode`; ValueError with the template's own words where it refuses."""
        if self.template is None:
            raise ValueError("this model has no chat template; use completions")
        return self._bounded(self.template.render(messages, options), most)

    def _bounded(self, text: str, most: int) -> list[int]:
        """The ids of the whole at once, after its pieces have shown that these will not be too many."""
        counted = 0
        for start in range(0, len(text) if len(text) > PIECE else 0, PIECE):
            counted += max(0, len(self._ids(text[start : start + PIECE])) - CUT)
            if counted > most:
                raise TooLongError(f"the prompt has more than {most} tokens")
        return self._ids(text)

    def _ids(self, text: str) -> list[int]:
        """Of the library's ways to encode, the one that leaves the interpreter lock and makes no offsets."""
        return list(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer without truncation and padding, whatever its file says: every id counts."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a batch is one text: no thread pool for it
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as problem:  # the library raises nothing narrower
        raise WorkerError(f"not a tokenizer: {problem}", where=str(path), fix="build the bundle again") from problem
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer

"""model.text: the model's tokenizer and chat template, as the build wrote them to /pih/model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pih_model_text.template import ChatTemplate
from pih_model_text.text import ModelText, load_tokenizer
from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError

__all__ = ["start"]


def start(context: Context) -> ModelText:
    """Load tokenizer.json, chat_template.jinja (empty where the model has none) and text.json."""
    folder = context.root / "model"
    about = _about(folder / "text.json")
    template = (folder / "chat_template.jinja").read_text()
    try:
        return ModelText(
            tokenizer=load_tokenizer(folder / "tokenizer.json"),
            template=ChatTemplate(template, about["template_variables"]) if template else None,
            stop_ids=frozenset(about["stop_ids"]),
            bos=[] if about["bos_id"] is None else [about["bos_id"]],
            defaults=about["defaults"],
        )
    except KeyError as problem:
        raise WorkerError(f"lacks the key {problem}", where=str(folder / "text.json")) from problem


def _about(path: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(path.read_bytes().decode())
    except (OSError, ValueError, RecursionError) as problem:
        raise WorkerError(f"cannot read: {problem}", where=str(path), fix="build the bundle again") from problem
    return about

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
    """Load tokenizer.json, chat_template.jinja (where the model has one) and text.json."""
    folder = context.root / "model"
    settings = _settings(folder / "text.json")
    template = folder / "chat_template.jinja"
    try:
        return ModelText(
            tokenizer=load_tokenizer(folder / "tokenizer.json"),
            template=ChatTemplate(template.read_text(), settings["template_variables"]) if template.exists() else None,
            stop_ids=frozenset(settings["stop_ids"]),
            bos=[settings["bos_id"]] if settings["add_bos"] else [],
            defaults=settings["defaults"],
        )
    except KeyError as problem:
        raise WorkerError(f"lacks the key {problem}", where=str(folder / "text.json")) from problem


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise WorkerError(f"cannot read: {problem}", where=str(path), fix="build the bundle again") from problem
    return settings

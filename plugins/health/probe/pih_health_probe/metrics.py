"""Prometheus text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Metric = tuple[str, str, str, float]  # name, 'counter' | 'gauge', help, value


def exposition(lock: Mapping[str, Any], metrics: Iterable[Metric], *, ready: bool) -> str:
    """The page: what runs here, each fallback by name, readiness, and the engine's metrics."""
    labels = {
        "profile": lock["profile"]["name"],
        "model": lock["service"]["model_name"],
        "isa": lock["target"]["isa"],
        "version": lock["pih"],
        "plan": lock["plan"]["sha256"],
    }
    lines = [*_header("pih_build_info", "gauge", "What this worker runs."), f"pih_build_info{_labels(labels)} 1"]
    lines += _header("pih_fallback_info", "gauge", "Slower or less exact paths that the lock names.")
    lines += [f"pih_fallback_info{_labels({'fallback': name})} 1" for name in lock["fallbacks"]]
    weights = lock["weights"]
    held = {"delivery": weights["delivery"], "verify": weights["verify"], "digest": weights["digest"]}
    held["pinned"] = "yes" if weights["delivery"] == "embed" or weights["digest"] else "no"
    lines += _header("pih_weights_info", "gauge", "How the weights came, and whether anything says which they are.")
    lines.append(f"pih_weights_info{_labels(held)} 1")
    for name, kind, text, value in (("pih_ready", "gauge", "1 while serving.", float(ready)), *metrics):
        lines += [*_header(name, kind, text), f"{name} {value:.17g}"]
    return "\n".join(lines) + "\n"


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

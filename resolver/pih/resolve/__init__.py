"""From intent and catalog to decisions: solver, explanations, artifacts, lowering, budget, build graph."""

from __future__ import annotations

from pih.resolve.locking import lock

__all__ = ["lock"]

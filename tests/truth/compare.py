"""How far two models' logits lie apart."""

from __future__ import annotations

import numpy as np


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def mean_kl(truth: np.ndarray, other: np.ndarray) -> float:
    """Mean over rows of KL(truth || other), in nats."""
    p, q = _log_softmax(truth), _log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def same_top(a: np.ndarray, b: np.ndarray) -> float:
    """Share of rows whose largest logit is the same."""
    return float((a.argmax(axis=-1) == b.argmax(axis=-1)).mean())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

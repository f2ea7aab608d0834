"""One step of the engine: a ragged batch of prefill chunks and decodes, mixed.

Every plan, kernel pack and backend takes exactly this; decode of one sequence is its
smallest case. Plain `array`s of C ints, so that a backend can hand them over as they are.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of one wanted row; `ops.OPS['sample']` is its definition. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """T tokens of S sequences, R rows whose logits are wanted.

    All arrays have typecode 'i'.
    ids        [T]    token id, or -(s+1): the id last sampled in slot s
    positions  [T]    position within the own sequence, from 0
    seq_start  [S+1]  tokens seq_start[i]..seq_start[i+1] are sequence i, in order of position
    page_table [S*P]  cache page of each block of page_size positions; P = `pages_per_seq`,
               at most those of a whole context
    slots      [T]    cache row to write: page * page_size + position % page_size
    rows       [R]    index of the token whose logits are wanted
    row_slots  [R]    sampling slot (0..seqs-1) that keeps the row's sampled id
    """

    ids: array[int]
    positions: array[int]
    seq_start: array[int]
    page_table: array[int]
    pages_per_seq: int
    slots: array[int]
    rows: array[int]
    row_slots: array[int]
    sampling: tuple[Sampling, ...]

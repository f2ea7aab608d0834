"""Attention over texts in a paged cache, against a softmax in float64."""

from __future__ import annotations

import numpy as np

from tests.integration.cuda.kernels.everywhere import SEEDS, run_everywhere
from tests.integration.cuda.kernels.layouts import Pages
from tests.integration.cuda.kernels.made import bits, symbol
from tests.integration.cuda.kernels.rounding import LEAST, bf16_normal, close, normal, rng, same_rounded, view, wide
from tests.integration.kernels.formats import bf16_round, bf16_value
from tests.support.launches import Cache, Step


class Texts:
    """Sequences in a paged cache, whose pages lie in any order among those of others; unwritten places are NaNs."""

    def __init__(self, lengths, heads, kv_heads, head_dim, seed=0, scale=0.25):
        self.lengths, self.heads, self.kv_heads, self.head_dim, self.scale = lengths, heads, kv_heads, head_dim, scale
        each = [-(-length // 16) for length in lengths]
        order = rng(seed, *lengths).permutation(sum(each) + 2)
        self.pages_per_seq = max(each) + 1
        # an entry past a sequence's pages is nobody's page
        self.table = np.full((len(lengths), self.pages_per_seq), 1 << 24, np.int32)
        for i, count in enumerate(each):
            self.table[i, :count] = order[sum(each[:i]) :][:count]
        self.q = [normal(seed + 1, i, n, heads * head_dim)[0] for i, n in enumerate(lengths, 1)]
        self.k, self.v = (
            [bf16_normal(seed + j, i, n, kv_heads, head_dim)[0] for i, n in enumerate(lengths, 1)] for j in (2, 3)
        )
        self._pages = len(order)

    def cache(self):
        made = Pages(self._pages, self.kv_heads, self.head_dim)
        for i, length in enumerate(self.lengths):
            at = np.arange(length)
            made.put(self.table[i, at // 16] * 16 + at % 16, self.k[i], self.v[i])
        return Cache(made.bits)

    def step(self, starts):
        """A step of every sequence's tokens from its start on."""
        counts = [length - start for length, start in zip(self.lengths, starts, strict=True)]
        positions = np.concatenate([np.arange(start, n) for start, n in zip(starts, self.lengths, strict=True)])
        return Step(
            sum(counts), len(counts), pages_per_seq=self.pages_per_seq, positions=positions,
            seq_start=np.cumsum([0, *counts]), page_table=self.table.reshape(-1),
        )  # fmt: skip

    def queries(self, starts):
        return np.concatenate([q[start:] for q, start in zip(self.q, starts, strict=True)])

    def wanted(self, starts):
        """In float64 from q rounded to bf16, [T,H*D]; and the sum of the sizes of what is added."""
        rows, sizes = [], []
        for i, start in enumerate(starts):
            group = self.heads // self.kv_heads
            q = bf16_value(bf16_round(self.q[i][start:])).astype(np.float64).reshape(-1, self.heads, self.head_dim)
            k, v = (bf16_value(x[i]).astype(np.float64).repeat(group, 1) for x in (self.k, self.v))
            with np.errstate(invalid="ignore"):
                scores = np.einsum("thd,phd->htp", q, k) * self.scale
                later = np.arange(self.lengths[i])[None] > np.arange(start, self.lengths[i])[:, None]
                scores[:, later] = -np.inf
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p /= p.sum(-1, keepdims=True)
                v[np.isnan(v)] = 0  # those tests that have NaNs here look at other rows
                rows.append(np.einsum("htp,phd->thd", p, v).reshape(len(q), -1))
                sizes.append(np.einsum("htp,phd->thd", p, np.abs(v)).reshape(len(q), -1))
        return np.concatenate(rows), np.concatenate(sizes)


def attention(here, texts, starts, positions, seqs, *, rounded=False, seeds=SEEDS, times=1, rows=slice(None)):
    """Weights are rounded to bf16, so is their sum's share: 2^-8 of the sum of sizes. Gives y.

    rows: those to compare; the others are for the caller to judge.
    """
    constants = {
        "heads": texts.heads, "kv_heads": texts.kv_heads, "head_dim": texts.head_dim, "scale_bits": bits(texts.scale),
        "positions": positions, "seqs": seqs,
    }  # fmt: skip
    step = texts.step(starts)
    y, inside = wide(np.zeros((step.tokens, texts.heads * texts.head_dim), np.float32), left=2, right=4)
    operands = [wide(texts.queries(starts), left=1), texts.cache()]
    views, _ = run_everywhere(
        here, symbol("attention", **constants), [*operands, (y, inside)], step, seeds=seeds, times=times
    )
    found = view(views[2], inside)
    wanted, size = texts.wanted(starts)
    close(found[rows], wanted[rows], 2.0**-8 * size[rows] + LEAST)
    if rounded:
        y, inside = wide(np.zeros(found.shape, np.uint16), left=2, right=2, sentinel=9)
        name = symbol("attention_bf16", **constants)
        views, _ = run_everywhere(here, name, [*operands, (y, inside)], step, seeds=seeds[:2])
        same_rounded(view(views[2], inside, 9), found)
    return found


def at_their_ends(here, shape, **how):
    """Every sequence of the plan's limits decodes at its last position: all that may be kept of chunks is kept."""
    some = Texts([shape.positions] * shape.seqs, shape.heads, shape.kv_heads, shape.head_dim)
    return attention(here, some, [shape.positions - 1] * shape.seqs, shape.positions, shape.seqs, **how)

"""A call through every entry that can run it: what the launch table picks, and the others, must agree to the bit."""

from __future__ import annotations

from tests.support.launches import TOKENS, WANTED

SEEDS = (1, 2, 3, 4)  # of the order of blocks and warps; odd ones have arrays end at their guard pages and idle blocks


def run_everywhere(here, symbol, operands, step, *, axis=TOKENS, seeds=SEEDS, times=1):
    """(operands, sampled ids) as every entry left them, whatever the order of warps and the blocks beside it."""
    rows = step.wanted if axis == WANTED else step.tokens
    found = {}
    for launch in here.entries(symbol, rows):
        for seed in seeds:
            odd = seed % 2 == 1
            found[f"{launch.entry}, seed {seed}"] = here.run(
                launch, operands, step, axis=axis, seed=seed, at_end=odd, spare=3 * odd, times=times
            )
    (name, (views, sampled)), *others = found.items()
    for other, (other_views, other_sampled) in others:
        for index, (one, two) in enumerate(zip(views, other_views, strict=True)):
            assert one.tobytes() == two.tobytes(), f"operand {index} of {other} is not that of {name}"
        assert sampled.tobytes() == other_sampled.tobytes(), f"sampled ids of {other} are not those of {name}"
    return views, sampled

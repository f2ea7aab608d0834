"""What the search for plugins costs on catalogs of ten thousand, and where plugins stand against each other.

Seconds are of the processor. A step is a candidate or a clause that is looked at; their number is that of every host.

    .venv/bin/python benchmarks/solver.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime"), str(ROOT)]

from pih.resolve.outcome import Solution  # noqa: E402 - the path comes first
from pih.resolve.solve import solve  # noqa: E402 - the path comes first
from tests.support.catalogs import ladder, layered, need, pigeons  # noqa: E402 - the path comes first

SHAPES = {
    "a chain, 30 deep": lambda: (layered(30, 334), [need("c0", ">=1")]),
    "two of the next level, any version": lambda: ladder(0, 30, 3, 111, 111),
    "two of the next level, 40 versions": lambda: ladder(0, 30, 3, 111, 40),
    "two of the next level, 20 versions": lambda: ladder(0, 30, 3, 111, 20),
    "two of the next level, 12 versions": lambda: ladder(0, 30, 3, 111, 12),
    "two of the next level, 5 versions": lambda: ladder(0, 30, 3, 111, 5),
    "10 pigeons, 9 holes": lambda: pigeons(10, 9),
    "20 pigeons, 19 holes": lambda: pigeons(20, 19),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    rows = []
    wanted = parser.parse_args()
    for name, make in SHAPES.items():
        plugins, roots = make()
        began = time.process_time()
        found = solve(roots, plugins, lambda _: None)
        took = time.process_time() - began
        ended = "found" if isinstance(found, Solution) else "given up" if found.given_up else "there is none"
        rows.append({"shape": name, "plugins": len(plugins), "seconds": took, "steps": found.steps, "ended": ended})
    if wanted.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['shape']:36}{row['plugins']:>7} plugins{row['seconds']:>8.2f} s{row['steps']:>9} steps  "
            f"{row['ended']}"
        )


if __name__ == "__main__":
    main()

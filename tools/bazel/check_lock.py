"""Does a lock answer its profile and these plugins? Use: python check_lock.py LOCK PROFILE."""

# ruff: noqa: INP001 - a program of its own
import sys
from pathlib import Path

# the tree that this file was put into, not the one that it may be a link to
ROOT = Path(__file__).absolute().parents[2]
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime")]

from pih import catalog, lock, profile, stale  # noqa: E402 - the path comes first
from pih.build import graph  # noqa: E402
from pih_runtime.errors import PihError  # noqa: E402


def main() -> int:
    """Exit code: that of the first thing found wrong."""
    try:
        found = lock.read(Path(sys.argv[1]))
        graph.check(found)
        stale.check(found, profile.load(Path(sys.argv[2])), catalog.load(ROOT))
    except PihError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


sys.exit(main())

"""`python -m pih`: the command line.

A request to end, also while modules are imported, goes the way of an exception: what was made for a while is removed.
"""

import signal
import sys
from types import FrameType


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would break off the removal
    sys.exit(128 + number)


try:
    signal.signal(signal.SIGTERM, _end)
    from pih.cli import main

    main()
except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)

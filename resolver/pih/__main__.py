"""`python -m pih`: the command line.

A request to end, also while modules are imported, goes the way of an exception: what was made for a while is removed.
"""

import signal
import sys
import traceback
from types import FrameType

_DEFECT = 70  # EX_SOFTWARE of sysexits.h: 1, Python's own, would say that a gate did not hold
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _: FrameType | None) -> None:
    for end in _ENDS:
        signal.signal(end, signal.SIG_IGN)  # a second one would break off the removal
    sys.exit(128 + number)


try:
    for end in _ENDS:
        if signal.getsignal(end) != signal.SIG_IGN:  # as nohup has it
            signal.signal(end, _end)
    from pih.cli import main

    main()
except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)
except Exception:  # noqa: BLE001 - whatever it is, it is no gate
    traceback.print_exc()
    sys.exit(_DEFECT)

"""A port for a program that is to listen there, where it cannot be told to choose one itself."""

import os
import socket
from itertools import count

_FIRST, _LAST = 20000, 32000  # below those that the kernel gives to others
_turns = count(os.getpid() * 101)


def free_port():
    """A port of 127.0.0.1 that nobody has now, and that nobody is given who asks for just any."""
    for turn in _turns:
        port = _FIRST + turn % (_LAST - _FIRST)
        with socket.socket() as server:
            try:
                server.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError

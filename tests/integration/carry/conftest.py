"""The shells that a carried file must run under."""

import shutil

import pytest

SHELLS = {"dash": ("dash",), "busybox": ("busybox", "ash"), "bash": ("bash", "--posix")}


@pytest.fixture(params=SHELLS)
def shell(request):
    command = SHELLS[request.param]
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    return command

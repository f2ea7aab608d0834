"""What a tool has built is built once: all tests of one tool run in one process."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items):
    for item in items:
        part = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(part))

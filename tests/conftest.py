"""In CI a test that cannot run is a failure: a skipped check must not look green.

But for tests marked `where_possible`: what they need cannot be installed from a registry everywhere.
"""

import os
import signal

import hypothesis
import pytest

# a job that a shell starts in the background ignores SIGINT, and so would every program that a test starts
signal.signal(signal.SIGINT, signal.default_int_handler)

# a time limit for each example would test the machine, not the code
hypothesis.settings.register_profile(
    "shared-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared-machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    required = os.environ.get("CI") == "true" and item.get_closest_marker("where_possible") is None
    if report.skipped and required and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where every check must run: {reason}"
    return report

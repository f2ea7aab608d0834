"""In CI a test that cannot run is a failure: a skipped check must not look green.

But for tests marked `where_possible`: what they need cannot be installed from a registry everywhere.
"""

import os
import signal

import hypothesis
import pytest

# A job in a shell's background ignores SIGINT, one of nohup SIGHUP. Programs that it starts inherit that; where it has
# a handler, even one that does nothing, they do not.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

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

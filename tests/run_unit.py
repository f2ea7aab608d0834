"""What a Bazel test of a folder runs: `python run_unit.py FOLDER`, in the test's runfiles."""

import os
import shutil
import sys
from pathlib import Path

try:
    import hypothesis
    import pytest
except ModuleNotFoundError as problem:
    sys.exit(f"{sys.executable} has no {problem.name}: unit tests need .venv-dev; to make it: tools/test lint")

# Bazel's tree is made of links into the checkout: a test that resolves its own path must stay within what it declares.
tree = Path(os.environ["TEST_TMPDIR"], "tree")
shutil.copytree(Path.cwd(), tree)
os.chdir(tree)
# Several tests share the processor here: how long one takes says nothing about it.
hypothesis.settings.register_profile(
    "bazel", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], database=None
)
hypothesis.settings.load_profile("bazel")
sys.exit(
    pytest.main(
        [
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            f"--junit-xml={os.environ['XML_OUTPUT_FILE']}",
            *sys.argv[1:],
        ]
    )
)

"""A bundle's plan, as every plugin reads it."""

import pytest

from pih_runtime import plan
from pih_runtime.errors import WorkerError


@pytest.mark.parametrize("text", [None, b"", b"[]", b"{}", b'{"schema": 7}'])
def test_a_plan_that_is_missing_or_none_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "plan.json").write_bytes(text)
    with pytest.raises(WorkerError) as caught:
        plan.read(tmp_path)
    assert caught.value.where == str(tmp_path / "plan.json")

"""Archives become trees before a step runs; to the step, they are like any other."""

import pytest

from pih.trust import content
from pih_runtime.errors import BuildError
from pih_steps import plugins
from pih_steps.spec import Spec
from tests.unit.trust import made


def spec(tmp_path, wanted):
    archive = tmp_path / "npu.tar"
    archive.write_bytes(content.of_folder(made.plugin(tmp_path / "npu")).archive)
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"")
    params = {"plugins": {"plugin/backend/npu": wanted}}
    return Spec(params, {"plugin/backend/npu": archive, "x": wheel}, {"own": tmp_path}, {}, (), tmp_path / "out")


def test_trees_of_the_archive_join_the_others(tmp_path):
    (tmp_path / "work").mkdir()
    made_spec = spec(tmp_path, {"plugins/backend/npu": "", "plugins/backend/npu/pih_backend_npu": "pih_backend_npu"})
    placed = plugins.placed(made_spec, tmp_path / "work")
    assert sorted(placed.trees) == ["own", "plugins/backend/npu", "plugins/backend/npu/pih_backend_npu"]
    assert (placed.trees["plugins/backend/npu"] / "plugin.toml").is_file()
    assert (placed.trees["plugins/backend/npu/pih_backend_npu"] / "__init__.py").is_file()
    assert list(placed.artifacts) == ["x"]


def test_a_part_that_is_not_in_the_archive(tmp_path):
    (tmp_path / "work").mkdir()
    with pytest.raises(BuildError, match="the plugin has no kernels"):
        plugins.placed(spec(tmp_path, {"kernels/npu": "kernels"}), tmp_path / "work")


def test_what_is_no_archive(tmp_path):
    (tmp_path / "npu.tar").write_bytes(b"x" * 2000)
    with pytest.raises(BuildError, match="not a plugin's archive"):
        plugins.unpack(tmp_path / "npu.tar", tmp_path / "out")

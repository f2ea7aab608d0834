"""What comes from strangers: any bytes are a plugin, a catalog or a signature, or are refused in words."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih import catalog
from pih.trust import content, index, sign
from pih_runtime.errors import PihError
from pih_steps import plugins
from tests.unit.trust import made

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
same_folder = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A good archive's bytes."""
    return content.of_folder(made.plugin(tmp_path_factory.mktemp("good") / "npu")).archive


@same_folder
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_the_same_plugin(tmp_path, archive, data):
    place = data.draw(st.integers(0, len(archive) - 1))
    change = data.draw(st.binary(min_size=0, max_size=16))
    path = tmp_path / "x.tar"
    path.write_bytes(archive[:place] + change + archive[place + data.draw(st.integers(0, 16)) :])
    try:
        assert content.of_archive(path).archive == path.read_bytes()
    except PihError:
        return


@same_folder
@given(raw=st.binary(max_size=2000))
def test_no_bytes_upset_the_unpacker(tmp_path_factory, raw):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "x.tar").write_bytes(raw)
    with contextlib.suppress(PihError):
        plugins.unpack(folder / "x.tar", folder / "out")


@same_folder
@given(raw=st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_upset_the_readers(tmp_path, raw):
    (tmp_path / index.INDEX).write_bytes(raw)
    (tmp_path / index.ROTATION).write_bytes(raw)
    (tmp_path / "x.sig").write_bytes(raw)
    for read in (
        lambda: index.read(tmp_path),
        lambda: index.rotations(tmp_path),
        lambda: sign.read(tmp_path / "x.sig"),
        lambda: catalog.parse(raw, "plugin.toml"),
    ):
        with contextlib.suppress(PihError):
            read()


@same_folder
@given(entry=st.dictionaries(st.sampled_from(["id", "version", "path", "sha256", "yanked", "x"]), JSON))
def test_no_entry_upsets_the_reader_of_catalogs(tmp_path, entry):
    (tmp_path / index.INDEX).write_text(json.dumps({"schema": 1, "name": "v", "plugins": [entry]}))
    with contextlib.suppress(PihError):
        index.read(tmp_path)

"""What holds for every lock, not only for those that are shipped."""

import json
from pathlib import Path

import attrs
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih import catalog, lock, pins, profile
from pih.catalog import Manifest, RuntimePart
from pih.resolve import locking
from pih.schema import json_schema
from pih_runtime.abi import ABI
from tests.support.generated import instances

ROOT = Path(__file__).parents[3]
PATH = ROOT / "profiles" / "qwen3-cpu-synthetic.toml"
INTENT, KNOWN, PINS = profile.load(PATH), catalog.load(ROOT), pins.load(ROOT)
COMMITTED = lock.path_for(PATH).read_text()
LOCKS = instances(lock.Lock).map(lambda found: attrs.evolve(found, schema=lock.SCHEMA))
SCHEMA = json.loads(json_schema(lock.LockFile, "lock"))
large = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@large
@given(LOCKS)
def test_a_lock_written_and_read_is_the_same_lock_and_the_same_bytes(found):
    text = lock.to_json(found)
    again = lock.from_json(text.encode(), "x.lock.json")
    assert again == found
    assert lock.to_json(again) == text


@settings(large, max_examples=20)
@given(LOCKS)
def test_every_lock_follows_the_schema(found):
    jsonschema.validate(json.loads(lock.to_json(found)), SCHEMA)


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
CAPABILITIES = st.sampled_from(catalog.CAPABILITIES)
KINDS = sorted({plugin.id.split("/")[0] for plugin in KNOWN.plugins} | {"transport"})


@st.composite
def strangers(draw, major):
    """Plugins that no requirement names, of capabilities in this major version."""
    kind = draw(st.sampled_from(KINDS))
    return Manifest(
        id=f"{kind}/x{draw(NAMES)}",
        version=f"{draw(st.integers(0, 9))}.{draw(st.integers(0, 9))}",
        kind=kind,
        abi=ABI,
        summary="",
        provides=draw(st.dictionaries(CAPABILITIES, st.just(f"{major}.{draw(st.integers(0, 9))}"), max_size=4)),
        requires=draw(st.dictionaries(CAPABILITIES, st.sampled_from([">=1,<2", ">=7", "==3.1"]), max_size=3)),
        conflicts=draw(st.dictionaries(st.sampled_from([plugin.id for plugin in KNOWN.plugins]), st.just(">=0"))),
        yanked=draw(st.sampled_from(["", "broken"])),
        runtime=draw(st.none() | st.just(RuntimePart("package", "package:start"))),
    )


@pytest.fixture(scope="module")
def memo(tmp_path_factory):
    return tmp_path_factory.mktemp("lowered")


def text_with(added, order, previous, memo):
    plugins = list(attrs.evolve(KNOWN).plugins) + list(added)
    order.shuffle(plugins)
    known = attrs.evolve(KNOWN, plugins=tuple(plugins))
    found = locking.lock(INTENT, known, PINS, previous, fetch=None, pin=None, memo=memo)
    return lock.to_json(found)


few = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(added=st.lists(strangers(major=8), max_size=5), order=st.randoms(use_true_random=False))
def test_plugins_that_serve_nothing_change_no_new_lock(memo, added, order):
    assert text_with(added, order, None, memo) == COMMITTED


@few
@given(added=st.lists(strangers(major=1), max_size=5), order=st.randoms(use_true_random=False))
def test_not_even_rivals_change_a_lock_that_is_there(memo, added, order):
    assert text_with(added, order, lock.from_json(COMMITTED, "x"), memo) == COMMITTED

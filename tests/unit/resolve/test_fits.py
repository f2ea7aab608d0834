"""What is offered to a deployment that does not fit: what catalog and target support, with values that do fit."""

import itertools
import json
import re
import tomllib
from pathlib import Path

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pih import catalog, pins, profile
from pih.catalog import Constraint, Manifest, Report, RuntimePart
from pih.lock import Budget, Limits
from pih.resolve import locking
from pih.resolve.fits import Levers, Size, memory, nearest, over
from pih_runtime.errors import ProfileError, ResolutionError

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "profiles" / "qwen3-cpu-synthetic.toml").read_text()
CUDA = (ROOT / "profiles" / "qwen3-4090d-synthetic.toml").read_text()
PINS = pins.load(ROOT)
KNOWN = catalog.load(ROOT)
TRANSPORT = Manifest(
    "transport/ring", "1.0", "transport", 1, "ring", {"transport.collectives": "1.0"}, target=Constraint(devices=2)
)


def changed(known, identity, **values):
    plugins = tuple(attrs.evolve(one, **values) if one.id == identity else one for one in known.plugins)
    return attrs.evolve(known, plugins=plugins)


ON_DEVICES = changed(KNOWN, "backend/cpu", target=Constraint(devices=1))
SPILLING = changed(ON_DEVICES, "memory/paged", report=Report(spill=("host",)))


def with_device(device, host="3 GiB", extra=""):
    text = TEXT.replace('memory = "3 GiB"', f'memory = "{host}"').replace("[limits]\n", f"[limits]\n{extra}")
    return f'{text}\n[device]\ncount = 1\nmemory = "{device}"\n'


@pytest.fixture(scope="module")
def resolved(tmp_path_factory):
    memo = tmp_path_factory.mktemp("lowered")

    def lock(text, known):
        intent = profile.parse(text.encode(), ROOT / "profiles" / "x.toml")
        return locking.lock(intent, known, PINS, None, fetch=None, pin=None, memo=memo)

    return lock


@pytest.fixture(scope="module")
def offers(resolved):
    return lambda text, known: refused(resolved, text, known)


def refused(resolved, text, known):
    with pytest.raises(ResolutionError) as caught:
        resolved(text, known)
    fits = re.sub("^the nearest (fits are|fit is) ", "", caught.value.fix).split(", or ")
    assert caught.value.fix.startswith(f"the nearest {'fits are' if len(fits) > 1 else 'fit is'} ")
    return caught.value.what, fits


def test_on_devices_their_memory_holds_weights_cache_and_activations(resolved):
    budget = resolved(with_device("3 GiB", host="512 MiB"), ON_DEVICES).budget
    assert budget.device == budget.weights + budget.kv + budget.activations
    assert (budget.total, budget.limit, budget.device_limit) == (budget.host, 512 << 20, 3 << 30)


def test_a_device_in_the_profile_holds_nothing_for_a_backend_that_asks_for_none(resolved):
    """It takes a transport to the other devices' ranks, and says nothing of their memory."""
    known = changed(KNOWN, "backend/cpu", optional={"transport.collectives": ">=1.0,<2"})
    budget = resolved(with_device("1 GiB"), known).budget
    assert (budget.device, budget.device_limit) == (0, 0)
    assert budget.total == budget.weights + budget.kv + budget.activations + budget.host


def test_too_much_for_the_device_names_its_line_and_offers_no_spill_that_nobody_keeps(offers):
    what, fits = offers(with_device("2000 MiB"), ON_DEVICES)
    assert 'device.memory = "2000 MiB"' in what.splitlines()[0]
    assert "= 2045.4 MiB on each device" in what
    assert [fit.split(" = ")[0] for fit in fits] == [
        "device.memory",
        "limits.context",
        "limits.batch",
        "model.weights that are stored as q8_0",
    ]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (with_device("2000 MiB"), SPILLING),
        (with_device("2000 MiB", host="100 MiB"), ON_DEVICES),
        (TEXT.replace("3 GiB", "1 GiB"), KNOWN),
        (CUDA.replace('"23 GiB"', '"4 GiB"'), KNOWN),
    ],
    ids=["spill", "both", "host", "gpu"],
)
def test_what_is_offered_locks(resolved, offers, text, known):
    tried = [fit for fit in offers(text, known)[1] if "model.weights" not in fit]  # for these it takes other files
    assert tried
    for fit in tried:
        resolved(with_lines(text, fit.split(" with ")), known)


def with_lines(text, lines):
    """The profile with these lines, `section.key = value`, in place of its own."""
    data = tomllib.loads(text)
    for line in lines:
        (section, keys), *_ = tomllib.loads(line).items()
        data.setdefault(section, {}).update(keys)
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for section, keys in data.items()
    )


def test_too_much_for_the_host_beside_a_device_names_the_hosts_line(offers):
    what, fits = offers(with_device("3 GiB", host="100 MiB"), ON_DEVICES)
    assert what.splitlines()[0].endswith('target.memory = "100 MiB",')
    assert "and host 163.6 MiB = 163.6 MiB." in what
    assert fits == ['target.memory = "164 MiB"']


def test_both_memories_too_small_are_named_together(offers):
    _, fits = offers(with_device("2000 MiB", host="100 MiB"), ON_DEVICES)
    assert fits == ['device.memory = "2046 MiB" with target.memory = "164 MiB"']


def test_the_least_spill_is_offered_where_the_memory_plugin_keeps_it(resolved, offers):
    text = with_device("2000 MiB")
    spill = offers(text, SPILLING)[1][-1]
    assert spill.startswith('limits.spill = "')
    budget = resolved(with_device("2000 MiB", extra=f"{spill.removeprefix('limits.')}\n"), SPILLING).budget
    mib = int(spill.split('"')[1].split()[0])
    assert budget.spill == mib << 20
    assert budget.total == budget.host + budget.spill
    assert budget.kv == 896 * 2**20 - budget.spill // (28 * 2 * 16 * 8 * 128 * 2) * (28 * 2 * 16 * 8 * 128 * 2)
    less = with_device("2000 MiB", extra=f'spill = "{mib - 1} MiB"\n')
    assert offers(less, SPILLING)


def test_no_spill_is_offered_that_the_host_has_no_room_for(offers):
    _, fits = offers(with_device("1500 MiB", host="200 MiB"), SPILLING)
    assert not [fit for fit in fits if "spill" in fit]


def test_one_sequence_stays_on_the_device(resolved):
    with pytest.raises(ResolutionError) as caught:
        resolved(with_device("3 GiB", extra='spill = "700 MiB"\n'), SPILLING)
    assert caught.value.what.startswith('Because profiles/x.toml:21 limits.spill = "700 MiB",\n  and ')
    assert caught.value.fix == "at most 672 MiB"
    assert resolved(with_device("3 GiB", extra='spill = "672 MiB"\n'), SPILLING).budget.kv == 224 << 20


def test_spill_that_nobody_keeps_is_refused_and_who_would_keep_it_named(resolved):
    with pytest.raises(ResolutionError) as caught:
        resolved(with_device("3 GiB", extra='spill = "1 MiB"\n'), ON_DEVICES)
    assert str(caught.value) == (
        'Because profiles/x.toml:21 limits.spill = "1 MiB",\n'
        "  and memory/paged reports no place in the host's memory for cache pages.\n"
        "  So nothing can spill.\n  to fix: remove limits.spill"
    )
    tiered = Manifest(
        "memory/tiered", "0.0.1", "memory", 1, "", {"memory.pages": "1.0"}, report=Report(spill=("host",))
    )
    wider = attrs.evolve(ON_DEVICES, plugins=(*ON_DEVICES.plugins, tiered))
    with pytest.raises(ResolutionError) as caught:
        resolved(with_device("3 GiB", extra='spill = "1 MiB"\n'), wider)
    assert caught.value.fix == 'selection.prefer = ["memory/tiered"], or remove limits.spill'


def test_spill_without_a_device_is_a_contradiction():
    with pytest.raises(ProfileError, match="the deployment has no device whose pages could spill"):
        profile.parse(TEXT.replace("[limits]\n", '[limits]\nspill = "1 GiB"\n').encode(), Path("x.toml"))


def test_another_format_is_offered_only_where_the_pack_has_kernels_for_it(offers):
    packs = {one.id: one for one in KNOWN.plugins}
    kernels = tuple(one for one in packs["kernels/cpu"].report.kernel if one.weight not in ("q8_0", "q4_1"))
    narrow = changed(KNOWN, "kernels/cpu", report=attrs.evolve(packs["kernels/cpu"].report, kernel=kernels))
    text = TEXT.replace("3 GiB", "2 GiB")
    assert "model.weights that are stored as q8_0" in offers(text, KNOWN)[1]
    assert not [fit for fit in offers(text, narrow)[1] if "model.weights" in fit]


def test_two_devices_hold_what_one_does_not(resolved, offers):
    tight = CUDA.replace('"23 GiB"', '"4 GiB"')
    what, fits = offers(tight, KNOWN)
    assert "on each device" in what
    assert "device.count = 2" in fits
    assert resolved(tight.replace("count = 1", "count = 2"), KNOWN).budget.device <= 4 << 30


@pytest.mark.parametrize(
    "values",
    [
        {"yanked": "it loses values"},
        {"abi": 99},
        {"requires": {"acme.fabric": ">=1.0"}},
        {"runtime": RuntimePart("p", "p:start", wheels=("no-such-wheel",))},
    ],
    ids=lambda values: next(iter(values)),
)
def test_devices_that_no_transport_can_join_are_not_offered(resolved, offers, values):
    known = changed(KNOWN, "transport/nccl", **values)
    tight = CUDA.replace('"23 GiB"', '"4 GiB"')
    _, fits = offers(tight, known)
    assert fits
    assert not [fit for fit in fits if "count" in fit]
    with pytest.raises(ResolutionError):
        resolved(tight.replace("count = 1", "count = 2"), known)


def test_as_many_devices_as_heads_are_the_most(offers):
    _, fits = offers(CUDA.replace('"23 GiB"', '"1500 MiB"').replace("batch = 8", "batch = 32"), KNOWN)
    assert not [fit for fit in fits if "count" in fit and "device.count = 8" not in fit]


def test_more_devices_do_not_help_where_no_kernel_adds_what_ranks_computed(offers):
    joined = attrs.evolve(ON_DEVICES, plugins=(*ON_DEVICES.plugins, TRANSPORT))
    assert not [fit for fit in offers(with_device("2000 MiB"), joined)[1] if "count" in fit]


def divided(size):
    """A model whose weights and cache are shared out among the devices."""
    weights = 1600 * {"": 2, "int8": 1}[size.weights] // size.devices
    kv = size.limits.context * size.limits.batch // size.devices
    return Budget(weights, kv, 10, 0, 5, 5, 100, weights + kv + 10, 1000)


SIZE = Size(Limits(256, 4, 64, "bf16", 0), 1, devices=1)


def test_the_fewest_devices_that_do_are_offered_as_far_as_there_are_any():
    assert nearest(SIZE, divided, Levers(devices=64)) == ["device.count = 8"]
    assert nearest(SIZE, divided, Levers(devices=4)) == []
    assert nearest(SIZE, divided, Levers()) == []


COUNTS = {"limits.context": 16, "limits.batch": 1, "limits.tokens": 1, "target.threads": 1}


def counts(size):
    return dict(zip(COUNTS, (size.limits.context, size.limits.batch, size.limits.tokens, size.threads), strict=True))


def sized(held):
    context, batch, tokens, threads = held.values()
    return Size(Limits(context, batch, tokens, "bf16", 0), threads)


@given(
    st.integers(2, 40), st.integers(1, 8), st.integers(16, 90), st.integers(1, 4),
    st.tuples(*[st.integers(0, 9)] * 4), st.integers(1, 5000),
)  # fmt: skip
def test_what_is_offered_fits_and_is_the_least_change_that_does(pages, batch, tokens, threads, costs, limit):
    """Of limits alone: nothing larger fits in their place, and no fewer of them."""
    size = sized({"context": pages * 16, "batch": batch, "tokens": tokens, "threads": threads})

    def measure(size):
        pages, batch, tokens, threads = (value // COUNTS[key] for key, value in counts(size).items())
        kv, rest = costs[0] * pages * batch + costs[1] * batch, costs[2] * tokens + costs[3] * tokens * threads
        return Budget(0, kv, rest, 0, 0, kv + rest, limit, 0, 0)

    assume(over(measure(size)))
    before, offered = counts(size), []
    for words in nearest(size, measure, Levers()):
        changes = {key: int(value) for key, value in (change.split(" = ") for change in words.split(" with "))}
        offered.append({*changes})
        assert all(0 < value < before[key] for key, value in changes.items())
        assert not over(measure(sized(before | changes)))
        for key, value in changes.items():
            assert over(measure(sized(before | changes | {key: min(value + COUNTS[key], before[key])})))
    least = {"limits.context": max(pages // 16, 1) * 16, "limits.batch": 1, "limits.tokens": 16, "target.threads": 1}
    for keys in itertools.chain.from_iterable(itertools.combinations(COUNTS, n) for n in range(1, 5)):
        lowered = before | {key: least[key] for key in keys}
        lowered["limits.tokens"] = max(lowered["limits.tokens"], lowered["limits.batch"])
        if not over(measure(sized(lowered))):
            assert offered
            assert len(offered[0]) <= len(keys)
            break
    else:
        assert not offered


def test_a_limit_that_need_not_go_down_stays():
    """Lowered one after the other, all four would be lower by the time that it fits."""

    def measure(size):
        total = size.limits.context * size.limits.batch + 10 * size.limits.tokens + size.threads
        return Budget(0, total, 0, 0, 0, total, 600, 0, 0)

    assert nearest(Size(Limits(256, 4, 64, "bf16", 0), 2), measure, Levers()) == [
        "limits.context = 96 with limits.tokens = 21",
        "limits.batch = 1 with limits.tokens = 34",
    ]


def test_smaller_weights_come_with_smaller_limits_where_neither_is_enough_alone():
    whole = attrs.evolve(SIZE, devices=2)
    found = nearest(whole, divided, Levers(("int8",)))
    assert found == [
        'weights.format = "int8" with limits.context = 80',
        'weights.format = "int8" with limits.batch = 1',
    ]
    for limits in ({"context": 80}, {"batch": 1}):
        fitting = attrs.evolve(whole, weights="int8", limits=attrs.evolve(whole.limits, **limits))
        assert not over(divided(fitting))


def test_an_amount_is_one_that_a_profile_can_name():
    assert memory(1) == '"1 MiB"'
    assert memory(2**20 * 1_000_000 + 1) == '"977 GiB"'

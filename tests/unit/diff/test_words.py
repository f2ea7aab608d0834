"""What is said of two bundles that differ in one thing: goldens, read by reviewers; and what else can differ."""

import itertools

import attrs
import pytest

from pih.diff import words
from pih.diff.compare import compare
from pih.diff.facts import Artifact, Component, Plugin
from tests.unit.diff.recorded import FORMS, NAMES, golden, pair

SIDES = {name: pair(name) for name in NAMES}
FIRST = SIDES["isa"][0]


def said(new, old=FIRST):
    return words.sentences(compare(old, new))


@pytest.mark.parametrize(("name", "form"), [*itertools.product(NAMES, FORMS)])
def test_one_thing_reads_as_one_sentence(name, form):
    assert FORMS[form](*SIDES[name]) == golden(name, form)


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_is_told(name):
    found = compare(*SIDES[name])
    assert sum(row.size.growth for row in found.image.components) == found.image.size.growth
    assert sum(row.size.growth for row in found.image.files) == found.image.size.growth
    assert sum(row.size.growth for row in found.image.layers) == found.image.size.growth


@pytest.mark.parametrize("name", NAMES)
def test_the_other_way_round_is_its_opposite(name):
    old, new = SIDES[name]
    there, back = compare(old, new), compare(new, old)
    assert {(row.name, -row.size.growth) for row in there.image.components} == {
        (row.name, row.size.growth) for row in back.image.components
    }
    assert {(row.old, row.new) for row in there.artifacts} == {(row.new, row.old) for row in back.artifacts}


def test_back_to_the_processor_nothing_of_the_device_is_left():
    old, new = SIDES["device"]
    first, *rest = said(old, new)
    assert first.startswith("Computes on the processor (x86-64-v3) instead of 1 x sm_89 (23552.0 MiB, driver 580.6")
    assert "backend/cpu and kernels/cpu are new; backend/cuda, backend/cuda-graphs and kernels/cuda are gone" in first
    assert first.endswith("; may no longer use nvidia.com/gpu and $CUDA_VISIBLE_DEVICES of the host.")
    assert "Memory of a device: 5373.5 MiB → none." in rest
    assert not [text for text in rest if text.startswith(("Target device", "Kernels", "New plugin"))]


def test_the_same_bundle_has_nothing_to_tell():
    found = compare(FIRST, FIRST)
    assert found.same
    assert words.headline(found) == "tiny: the same image."
    assert words.sentences(found) == ()


def test_locks_alone_know_no_sizes_and_say_so():
    old, new = (attrs.evolve(side, image=None) for side in SIDES["separate"])
    assert words.headline(compare(old, new)) == "tiny: other decisions; sizes are not known from a lock."
    assert said(new, old) == (
        "Weights move out of the image (embed → separate).",
        "Not compared: sizes, layers and files, which are not known from a lock (first and second).",
    )
    assert words.headline(compare(old, old)) == "tiny: no decision differs; sizes are not known from a lock."


def test_a_lock_against_a_bundle_compares_decisions_and_tells_the_size_that_is_known():
    old, new = SIDES["separate"]
    found = compare(attrs.evolve(old, image=None), new)
    assert words.headline(found).startswith("tiny: other decisions; second has 34.0 MB unpacked, 13.0 MB compressed")
    assert words.sentences(found)[-1].endswith("which are not known from a lock (first).")
    assert found.new_components == ()


def test_an_unpacked_bundle_has_no_compressed_sizes():
    layers = tuple(attrs.evolve(row, digest="", compressed=None) for row in FIRST.image.layers)
    new = attrs.evolve(FIRST, image=attrs.evolve(FIRST.image, digest="", layers=layers))
    assert said(new) == ("Not compared: compressed sizes, which are not known of an unpacked bundle.",)
    assert compare(FIRST, new).image.compressed.new is None


def with_plugin(side, **changes):
    plugins = tuple(attrs.evolve(item, **changes) if item.id == "surface/openai" else item for item in side.plugins)
    return attrs.evolve(side, plugins=plugins)


def test_permissions():
    assert said(with_plugin(FIRST, may=("/dev/npu0",))) == (
        "surface/openai may now use /dev/npu0 of the host.",
        "surface/openai may no longer listen on a port.",
    )


def test_a_plugin_from_elsewhere():
    other = with_plugin(FIRST, source="from catalog vendor, signed by abc")
    assert said(other) == ("Plugin surface/openai 0.1.0 → 0.1.0 from catalog vendor, signed by abc.",)


def test_licences():
    licences = FIRST.licences | {"h11": "GPL-3.0-only"}
    assert said(attrs.evolve(FIRST, licences=licences)) == ("Licence of h11: MIT → GPL-3.0-only.",)


def test_a_new_component_has_its_licence_told():
    image = attrs.evolve(FIRST.image, digest="x", components=(*FIRST.image.components, Component("foo", "1.0", 0)))
    artifacts = (*FIRST.artifacts, Artifact("foo", "1.0", "wheel", "0" * 64, "wheels"))
    new = attrs.evolve(FIRST, image=image, artifacts=artifacts, licences=FIRST.licences | {"foo": "ISC"})
    assert said(new)[:2] == ("Wheels: foo 1.0 is new.", "New in the image: foo (ISC).")


def test_fallbacks_and_precision():
    words_of_it = "silu_mul runs the scalar reference"
    slower = attrs.evolve(FIRST, fallbacks=(words_of_it,))
    assert said(slower) == (f"New fallback: {words_of_it}.",)
    assert said(FIRST, slower) == (f"No fallback any more: {words_of_it}.",)
    kernels = tuple(attrs.evolve(item, mode="bf16") if item.op == "attention" else item for item in FIRST.kernels)
    assert said(attrs.evolve(FIRST, kernels=kernels)) == (
        "Kernels: 1 of 11 ops has other kernels (attention).",
        "Precision of attention: sums pass through bf16 instead of f32.",
    )


def test_the_same_version_with_other_bytes():
    changed = tuple(attrs.evolve(item, sha256="f" * 64) if item.name == "libc6" else item for item in FIRST.artifacts)
    (sentence,) = said(attrs.evolve(FIRST, artifacts=changed))
    assert "→ 2.36-9+deb12u14 (sha256:ffffffffffff)" in sentence


def test_many_names_are_cut():
    added = tuple(Plugin(f"x/{number}", "1", "health", "", ()) for number in range(3))
    assert len(said(attrs.evolve(FIRST, plugins=FIRST.plugins + added))) == 3
    artifacts = tuple(attrs.evolve(item, version="9") for item in FIRST.artifacts)
    assert any(sentence.endswith("and 8 more.") for sentence in said(attrs.evolve(FIRST, artifacts=artifacts)))


def test_target_and_settings():
    settings = FIRST.settings | {"target.memory_bytes": str(2**30), "target.threads": "8", "service.port": "9000"}
    assert set(said(attrs.evolve(FIRST, settings=settings))) == {
        "Target memory: 256.0 MiB → 1024.0 MiB.",
        "Target threads: 1 → 8.",
        "Settings: service.port 8000 → 9000.",
    }


def test_a_device_and_its_memory():
    settings = FIRST.settings | {"target.device.sm": "sm_89"}
    memory = FIRST.memory | {"device": 2**30, "device_limit": 2**34, "host": FIRST.memory["host"] - 2**20}
    assert said(attrs.evolve(FIRST, settings=settings, memory=memory)) == (
        "Target device sm: none → sm_89.",
        "Memory of a device: none → 1024.0 MiB of 16384.0 MiB.",
        "Of host and device together: host -1.00 MiB.",
    )


def test_what_a_plugin_may_reach_of_a_gpu_has_a_verb():
    first, *rest = FIRST.plugins
    asks = ("nvidia.com/gpu", "$CUDA_VISIBLE_DEVICES", "/dev/x", "listen on a port")
    plugins = (attrs.evolve(first, may=asks), *rest)
    found = said(attrs.evolve(FIRST, plugins=plugins))
    for reach in (
        "use nvidia.com/gpu of the host",
        "read $CUDA_VISIBLE_DEVICES of the host",
        "use /dev/x of the host",
        "listen on a port",
    ):
        assert f"{first.id} may now {reach}." in found


def test_another_gpu():
    old = attrs.evolve(
        FIRST, settings=FIRST.settings | {"target.device.sm": "sm_89", "target.device.memory_bytes": "0"}
    )
    new = {"target.device.sm": "sm_90", "target.device.memory_bytes": str(80 << 30)}
    assert said(attrs.evolve(old, settings=old.settings | new), old) == (
        "Target sm_89 → sm_90: the same 16 kernels for 11 ops, compiled for it.",
        "Target device memory: 0.0 MiB → 81920.0 MiB.",
    )


def test_what_no_sentence_is_about_is_told_all_the_same():
    other = attrs.evolve(FIRST, plan="9 calls, sha256:0", parts=FIRST.parts | {"plan": "0"})
    assert said(other) == (f"The plan of the model's calls is another one: {FIRST.plan} → 9 calls, sha256:0.",)
    other = attrs.evolve(FIRST, image=None, parts=FIRST.parts | {"build": "0", "start_order": "0"})
    found = compare(attrs.evolve(FIRST, image=None), other)
    assert not found.same
    assert words.sentences(found)[0] == "Only these parts of the lock changed: build, start_order."
    first, *rest = FIRST.plugins
    plugins = (attrs.evolve(first, manifest="0"), *rest)
    other = attrs.evolve(FIRST, image=None, plugins=plugins, parts=FIRST.parts | {"plugins": "0"})
    found = compare(attrs.evolve(FIRST, image=None), other)
    told = f"Plugin {first.id} has another manifest under the same version, {first.version}."
    assert words.sentences(found)[0] == told
    other = attrs.evolve(other, settings=FIRST.settings | {"service.port": "9000"})
    assert told in words.sentences(compare(attrs.evolve(FIRST, image=None), other))


def test_what_the_weights_are_checked_against_and_when():
    digest = f"sha256:{'a' * 64}"
    pinned = attrs.evolve(FIRST, weights=attrs.evolve(FIRST.weights, pin=digest))
    assert [sentence for sentence in said(pinned) if "pinned" in sentence] == [f"The weights are pinned to {digest}."]
    assert "The weights are not pinned any more." in said(FIRST, pinned)
    later = attrs.evolve(FIRST, weights=attrs.evolve(FIRST.weights, verify="first-use"))
    assert "The worker checks the weights when it first reads them." in said(later)
    assert "The worker checks the weights before it is ready." in said(FIRST, later)

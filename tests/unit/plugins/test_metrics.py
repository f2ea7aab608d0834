"""health/probe: the exposition is what Prometheus reads."""

import pytest
from pih_health_probe.metrics import exposition

LOCK = {
    "profile": {"name": "p"},
    "service": {"model_name": 'a "b"\\\n'},
    "target": {"isa": "x86-64-v3"},
    "pih": "0.1.0",
    "plan": {"sha256": "ab"},
    "fallbacks": ["linear bf16: scalar"],
    "weights": {"delivery": "separate", "verify": "first-use", "digest": ""},
}


def test_the_page():
    page = exposition(LOCK, [("pih_steps_total", "counter", "Steps run.", 3)], ready=True)
    assert page == (
        "# HELP pih_build_info What this worker runs.\n"
        "# TYPE pih_build_info gauge\n"
        'pih_build_info{profile="p",model="a \\"b\\"\\\\\\n",isa="x86-64-v3",version="0.1.0",plan="ab"} 1\n'
        "# HELP pih_fallback_info Slower or less exact paths that the lock names.\n"
        "# TYPE pih_fallback_info gauge\n"
        'pih_fallback_info{fallback="linear bf16: scalar"} 1\n'
        "# HELP pih_weights_info How the weights came, and whether anything says which they are.\n"
        "# TYPE pih_weights_info gauge\n"
        'pih_weights_info{delivery="separate",verify="first-use",digest="",pinned="no"} 1\n'
        "# HELP pih_ready 1 while serving.\n"
        "# TYPE pih_ready gauge\n"
        "pih_ready 1\n"
        "# HELP pih_steps_total Steps run.\n"
        "# TYPE pih_steps_total counter\n"
        "pih_steps_total 3\n"
    )


@pytest.mark.parametrize(
    ("delivery", "digest", "pinned"), [("embed", "", "yes"), ("separate", "sha256:ab", "yes"), ("separate", "", "no")]
)
def test_weights_that_nobody_vouches_for_show(delivery, digest, pinned):
    lock = {**LOCK, "weights": {"delivery": delivery, "verify": "start", "digest": digest}}
    line = next(line for line in exposition(lock, [], ready=True).splitlines() if line.startswith("pih_weights_info"))
    assert f'delivery="{delivery}"' in line
    assert f'pinned="{pinned}"' in line


def test_words_of_several_lines_stay_on_theirs():
    page = exposition(LOCK, [("x_total", "counter", "one\ntwo \\ three", 1)], ready=True)
    assert "# HELP x_total one\\ntwo \\\\ three\n# TYPE x_total counter\n" in page

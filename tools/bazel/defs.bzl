"""pih_bundle and pih_lock_test. Load them from a hub of locks (`pih.locks`), which fills in the build graphs."""

load("//tools/bazel:load.bzl", "pih_load")
load("//tools/bazel:lock.bzl", "key_of")
load("//tools/bazel:lock_test.bzl", _pih_lock_test = "pih_lock_test")
load("//tools/bazel:step.bzl", "pih_file", "pih_interpreter", "pih_layout", "pih_step")

pih_lock_test = _pih_lock_test

# The program of every step.
_PROGRAM = ["resolver/pih_steps", "runtime/pih_runtime"]

def pih_bundle(name, lock, graphs, **kwargs):
    """The sealed image of a lock.

    Targets: NAME, the OCI image layout, a folder; NAME.tar, the same as one file that `podman load` and
    `docker load` take; NAME.load, which `bazel run` loads it with; NAME.steps/ID, each step of the build graph.

    Args:
      name: of the targets
      lock: label of the lock
      graphs: name of a lock's file → struct(build, files, seed)
      **kwargs: what every target gets, such as tags and visibility
    """
    graph = graphs.get(key_of(lock))
    if not graph:
        fail("%s is not among the locks of this hub: %s" % (lock, ", ".join(sorted(graphs))))
    build, files = graph.build, graph.files
    _check(lock, build, files)
    pih_interpreter(
        name = name + ".python",
        debs = {files[deb]: deb for deb in build["interpreter"]},
        seed = graph.seed,
        seed_deb = files[build["seed"]["deb"]],
        seed_member = build["seed"]["member"],
        **kwargs
    )
    common = dict(kwargs, interpreter = name + ".python", lock = lock, seed = graph.seed)
    targets = {step["id"]: "%s.steps/%s" % (name, step["id"]) for step in build["steps"]}
    targets[build["steps"][-1]["id"]] = name
    for step in build["steps"]:
        target = targets[step["id"]]
        rule = pih_layout if target == name else pih_step
        rule(
            name = target,
            artifacts = {files[item]: item for item in step["artifacts"]},
            params = json.encode(step["params"]),
            run = step["run"],
            steps = {targets[item]: item for item in step["steps"]},
            tools = [files[item] for item in step["tools"]],
            trees = _trees(step),
            **common
        )
    pih_file(name = name + ".tar", params = "{}", run = "archive", steps = {name: "image"}, trees = _PROGRAM, **common)
    pih_load(name = name + ".load", archive = name + ".tar", **kwargs)

def _trees(step):
    """The step's own trees, and the program of the steps where it declares no part of that."""
    return step["trees"] + [
        tree
        for tree in _PROGRAM
        if not [own for own in step["trees"] if own == tree or own.startswith(tree + "/")]
    ]

def _check(lock, build, files):
    """Every input of every step is there and comes before it."""
    before = []
    for step in [{"artifacts": build["interpreter"], "id": "", "steps": [], "tools": []}] + build["steps"]:
        for item in step["artifacts"] + step["tools"]:
            if item not in files:
                fail("%s: step %r needs artifact %r, which the lock does not list" % (lock, step["id"], item))
        for item in step["steps"]:
            if item not in before:
                fail("%s: step %r needs step %r, which does not come before it" % (lock, step["id"], item))
        before.append(step["id"])

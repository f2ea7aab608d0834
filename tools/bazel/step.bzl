"""Rules: the interpreter that the lock pins, and one action for each step of its build graph.

What an action sees is declared: artifacts by digest, the files of the step's source trees, outputs of other steps.
It starts with the lock's seed, a static executable, and uses nothing of the host. Bazel 4 to 9.
"""

load("//tools/bazel:sources.bzl", "PihSourcesInfo")

PihOutputInfo = provider(doc = "A step's output.", fields = {"path": "its path; a file or a folder within the target's file"})

# Steps run programs for this platform, wherever Bazel itself runs.
_PLATFORM = ["@platforms//os:linux", "@platforms//cpu:x86_64"]

def _interpreter_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add_all(["sh", ctx.file._unpack, ctx.file.seed, ctx.file.seed_deb, ctx.attr.seed_member, out.path])
    for deb, name in ctx.attr.debs.items():
        args.add_all([name, deb.files.to_list()[0]])
    ctx.actions.run(
        executable = ctx.file.seed,
        arguments = [args],
        inputs = ctx.files.debs + [ctx.file.seed_deb, ctx.file._unpack],
        outputs = [out],
        mnemonic = "PihInterpreter",
        progress_message = "Unpacking the pinned interpreter",
        execution_requirements = {"block-network": "1"},
    )
    return [DefaultInfo(files = depset([out]))]

pih_interpreter = rule(
    doc = "The packages of the pinned Python as plain tars, in one folder.",
    implementation = _interpreter_impl,
    exec_compatible_with = _PLATFORM,
    attrs = {
        "debs": attr.label_keyed_string_dict(doc = "package → its name", allow_files = True),
        "seed": attr.label(doc = "the first executable", allow_single_file = True, cfg = "exec"),
        "seed_deb": attr.label(doc = "the package it comes from", allow_single_file = True),
        "seed_member": attr.string(doc = "its path in that package"),
        "_unpack": attr.label(default = "//tools/bazel:unpack.sh", allow_single_file = True),
    },
)

def _relative(file):
    """Path of a source file in its own repository."""
    return file.short_path.split("/", 2)[2] if file.short_path.startswith("../") else file.short_path

def _sources(ctx):
    """The files of the step's trees."""
    names = [tree for tree in ctx.attr.trees if tree != "lock"]
    for package in ctx.attr._sources[PihSourcesInfo].packages:
        if [name for name in names if (name + "/").startswith(package + "/") or package.startswith(name + "/")]:
            fail("\n\n%s: the BUILD file in %s hides what lies beside it from Bazel.\n" % (ctx.label, package) +
                 "  to fix: take it away, or give it another name\n")
    found = {name: False for name in names}
    files = []
    for file in ctx.files._sources:
        path = _relative(file)
        owners = [name for name in names if path == name or path.startswith(name + "/")]
        found.update([(name, True) for name in owners])
        if owners:
            files.append(file)
    missing = [name for name in names if not found[name]]
    if missing:
        fail("\n\n%s: Bazel sees no %s in the source tree of PIH, which the lock names.\n" % (ctx.label, missing[0]) +
             "  to fix: check out the whole project; a BUILD file there, or in a folder above, hides it: take it away\n")
    return files

def _single(target):
    return target.files.to_list()[0]

def _run(ctx, out, output):
    """One action: the step's program writes `output`, which is `out` or lies in it."""
    work = output + ".work/source/"
    trees = {tree: work + ("lock.json" if tree == "lock" else tree) for tree in ctx.attr.trees}
    spec = ctx.actions.declare_file(ctx.label.name + ".spec.json")
    ctx.actions.write(spec, json.encode({
        "artifacts": {name: _single(target).path for target, name in ctx.attr.artifacts.items()},
        "output": output,
        "params": json.decode(ctx.attr.params),
        "steps": {name: target[PihOutputInfo].path for target, name in ctx.attr.steps.items()},
        "tools": [_single(target).path for target in ctx.attr.tools],
        "trees": trees,
    }))
    sources = _sources(ctx)
    listing = ctx.actions.declare_file(ctx.label.name + ".sources")
    ctx.actions.write(listing, "".join([_relative(file) + "\n" for file in sources]))
    lock = [ctx.file.lock] if "lock" in ctx.attr.trees else []
    args = ctx.actions.args()
    args.add_all(["sh", ctx.file._run, ctx.file.seed, ctx.files.interpreter[0].path])
    args.add_all([ctx.attr._sources.label.workspace_root or ".", listing, lock[0] if lock else "", output])
    args.add_all(["resolver/pih_steps", ctx.attr.run, spec])
    ctx.actions.run(
        executable = ctx.file.seed,
        arguments = [args],
        inputs = depset(
            sources + lock + [spec, listing, ctx.file._run] + ctx.files.interpreter +
            ctx.files.artifacts + ctx.files.tools + ctx.files.steps,
        ),
        outputs = [out],
        mnemonic = "PihStep",
        progress_message = "PIH step %s: %s" % (ctx.attr.run, ctx.label.name),
        execution_requirements = {"block-network": "1"},
    )
    return [DefaultInfo(files = depset([out])), PihOutputInfo(path = output)]

def _step_impl(ctx):
    # A folder, since the lock does not say which steps write a file and which a folder.
    out = ctx.actions.declare_directory(ctx.label.name)
    return _run(ctx, out, out.path + "/output")

def _layout_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    return _run(ctx, out, out.path)

def _file_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    return _run(ctx, out, out.path)

def _step_rule(doc, implementation):
    return rule(
        doc = doc,
        implementation = implementation,
        exec_compatible_with = _PLATFORM,
        attrs = {
            "artifacts": attr.label_keyed_string_dict(doc = "file → its name in the lock", allow_files = True),
            "interpreter": attr.label(doc = "a pih_interpreter"),
            "lock": attr.label(doc = "the lock, for steps that have it among their trees", allow_single_file = True),
            "params": attr.string(doc = "the step's parameters, as JSON"),
            "run": attr.string(doc = "the step's program"),
            "seed": attr.label(doc = "the first executable", allow_single_file = True, cfg = "exec"),
            "steps": attr.label_keyed_string_dict(doc = "step → its id", providers = [PihOutputInfo]),
            "tools": attr.label_list(doc = "wheels on the program's path", allow_files = True),
            "trees": attr.string_list(doc = "paths in PIH's source tree that the step sees"),
            "_run": attr.label(default = "//tools/bazel:run.sh", allow_single_file = True),
            "_sources": attr.label(default = "//:sources", providers = [PihSourcesInfo]),
        },
    )

pih_step = _step_rule("A step; its output lies in a folder of the target's name.", _step_impl)
pih_layout = _step_rule("The last step: an OCI image layout, a folder of the target's name.", _layout_impl)
pih_file = _step_rule("A step that writes a file of the target's name.", _file_impl)

"""For WORKSPACE files, Bazel 4 to 7: what PIH needs from elsewhere, and the locks."""

load("//tools/bazel:lock.bzl", "pih_locks_hub")

def _built_in(names):
    return "".join(["%s = native.%s\n" % (name, name) for name in names])

_PYTHON = {
    "python/BUILD.bazel": """alias(
    name = "toolchain_type",
    actual = "@bazel_tools//tools/python:toolchain_type",
    visibility = ["//visibility:public"],
)
""",
    "python/defs.bzl": """load("@bazel_tools//tools/python:toolchain.bzl", _pair = "py_runtime_pair")

py_runtime_pair = _pair
""" + _built_in(["py_library", "py_runtime", "py_test"]),
}

# Bazel 4 wants to download these before it builds or tests anything.
_BAZEL_4 = {
    "remote_coverage_tools": {
        "BUILD.bazel": '[sh_binary(name = name, srcs = ["none.sh"], visibility = ["//visibility:public"])' +
                       ' for name in ["Main", "coverage_report_generator"]]\n',
        "none.sh": '#!/bin/sh\necho "no coverage here" >&2\nexit 1\n',
    },
    "rules_cc": {
        "cc/BUILD.bazel": "",
        "cc/defs.bzl": _built_in(
            ["cc_" + name for name in ["binary", "import", "library", "test", "toolchain", "toolchain_suite"]],
        ),
    },
    "rules_java": {
        "java/BUILD.bazel": "",
        "java/defs.bzl": _built_in(
            ["java_" + name for name in ["binary", "import", "library", "runtime", "toolchain"]],
        ),
    },
}

def _stand_in_impl(rctx):
    rctx.file("WORKSPACE", "")
    for path, content in rctx.attr.files.items():
        rctx.file(path, content)

_stand_in = repository_rule(
    doc = "A repository of a few lines, in place of a download.",
    implementation = _stand_in_impl,
    attrs = {"files": attr.string_dict()},
)

def pih_dependencies():
    """Stand-ins for what is built into Bazel 4 to 7, unless the workspace has the real ones."""
    version = getattr(native, "bazel_version", "")
    wanted = dict({"rules_python": _PYTHON}, **(_BAZEL_4 if not version or version.startswith("4.") else {}))
    for name, files in wanted.items():
        if not native.existing_rule(name):
            _stand_in(name = name, files = files)

def pih_locks(files, name = "pih_locks"):
    """A hub of locks; its artifacts.bzl declares the files that they name.

    Args:
      files: labels of locks
      name: of the repository to load pih_bundle from
    """
    pih_locks_hub(name = name, files = files, hub = name)

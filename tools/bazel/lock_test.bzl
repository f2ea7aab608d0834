"""Rule: a test that a lock answers its profile and this release's plugins."""

def _lock_test_impl(ctx):
    files = ctx.files._sources + ctx.files._program + [ctx.file.lock, ctx.file.profile, ctx.file._python]
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        script,
        "#!/bin/sh\nexec '%s' -I -B '%s' '%s' '%s'\n" %
        tuple([file.short_path for file in [ctx.file._python, ctx.file._check, ctx.file.lock, ctx.file.profile]]),
        is_executable = True,
    )
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = files + [ctx.file._check]))]

pih_lock_test = rule(
    doc = "Does the lock answer its profile, and does its build graph hold together? Needs PIH's own environment.",
    implementation = _lock_test_impl,
    test = True,
    attrs = {
        "lock": attr.label(allow_single_file = True, mandatory = True),
        "profile": attr.label(allow_single_file = True, mandatory = True),
        "_check": attr.label(default = "//tools/bazel:check_lock.py", allow_single_file = True),
        "_program": attr.label(default = "//:program", allow_files = True),
        "_python": attr.label(default = "//tools/bazel:python", allow_single_file = True),
        "_sources": attr.label(default = "//:sources", allow_files = True),
    },
)

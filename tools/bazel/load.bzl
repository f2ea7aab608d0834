"""Rule: `bazel run` hands an image archive to the container engine of this host."""

_SCRIPT = """#!/bin/sh
# loads the image into the container engine of this host; PIH_ENGINE names another program than podman or docker
set -eu
if [ -n "${PIH_ENGINE:-}" ]; then set -- "$PIH_ENGINE"; else set -- podman docker; fi
for engine; do
    if command -v "$engine" >/dev/null; then exec "$engine" load -i '%s'; fi
done
if [ -n "${PIH_ENGINE:-}" ]; then
    echo "PIH_ENGINE names no program of this host: $PIH_ENGINE" >&2
    echo "  to fix: install it, name another, or unset PIH_ENGINE for podman or docker" >&2
    exit 9
fi
echo "no podman and no docker: install one, or name another in PIH_ENGINE" >&2
exit 9
"""

def _load_impl(ctx):
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(script, _SCRIPT % ctx.file.archive.short_path, is_executable = True)
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = [ctx.file.archive]))]

pih_load = rule(
    doc = "Loads an image archive.",
    implementation = _load_impl,
    executable = True,
    attrs = {"archive": attr.label(doc = "what `podman load` takes", allow_single_file = True, mandatory = True)},
)

"""Rule: the files that build steps are made from, and what of them Bazel hides."""

PihSourcesInfo = provider(doc = "Source trees.", fields = {"packages": "folders in them that are packages: no glob sees into one"})

def _sources_impl(ctx):
    files = ctx.files.srcs
    return [
        DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files = files)),
        PihSourcesInfo(packages = ctx.attr.packages),
    ]

_sources = rule(
    implementation = _sources_impl,
    attrs = {"packages": attr.string_list(), "srcs": attr.label_list(allow_files = True)},
)

def pih_sources(name, trees, exclude):
    """All files below some folders.

    Args:
      name: of the target
      trees: the folders
      exclude: patterns of what is left out
    """

    packages = []
    if hasattr(native, "subpackages"):  # Bazel 4 has it not: there a step finds them, once it runs
        patterns = trees + [tree + "/**" for tree in trees]
        packages = native.subpackages(include = patterns, allow_empty = True)
    _sources(name = name, packages = packages, srcs = native.glob([tree + "/**" for tree in trees], exclude = exclude))

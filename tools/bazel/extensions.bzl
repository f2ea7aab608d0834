"""Module extension: the repositories of locks. Bazel 7 and newer."""

load("//tools/bazel:lock.bzl", "declare", "decoded", "key_of", "pih_locks_hub")

def _pih_impl(mctx):
    hubs = {}
    for module in mctx.modules:
        for tag in module.tags.locks:
            if tag.name in hubs:
                fail("modules %s and %s both name their locks %s" % (hubs[tag.name], module.name, tag.name))
            hubs[tag.name] = module.name
            pih_locks_hub(name = tag.name, files = tag.files, hub = tag.name)
            for file in tag.files:
                declare(tag.name, key_of(file), decoded(file, mctx.read(file)))

_locks = tag_class(
    doc = "Locks to build from.",
    attrs = {
        "files": attr.label_list(mandatory = True),
        "name": attr.string(doc = "of the repository to load from", default = "pih_locks"),
    },
)

pih = module_extension(implementation = _pih_impl, tag_classes = {"locks": _locks})

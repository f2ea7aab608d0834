"""Repositories made from locks: one for each artifact, one for the build graphs. Bazel 4 to 9.

An artifact comes from Bazel's repository cache or distdir by its digest, from PIH's store on this host, or from a
mirror that the user names with Bazel's downloader configuration, which rewrites the host `pih.invalid`.
"""

# What is not ASCII: the bytes of UTF-8, which a string of Bazel's has as characters.
_BEYOND = {
    json.decode('"\\u00%s%s"' % (high, low)): "%" + high + low
    for high in "89ABCDEF".elems()
    for low in "0123456789ABCDEF".elems()
}

# What a URL's path may not have as it is.
_ESCAPED = dict({char: "%" + code for char, code in zip(
    " \"#<>?[\\]^`{|}".elems(),
    "20 22 23 3C 3E 3F 5B 5C 5D 5E 60 7B 7C 7D".split(" "),
)}, **_BEYOND)

def _url(path):
    return "file://" + "".join([_ESCAPED.get(c, c) for c in path.replace("%", "%25").elems()])

def decoded(file, text):
    """A lock's content; fails where nothing can be built from it, in the words of `pih build`.

    Args:
      file: label of the lock, for people
      text: what it holds

    Returns:
      the lock
    """
    lock = json.decode(text)
    problem = _problem(lock)
    if problem:
        fail("\n\n%s: %s.\n  to fix: write the lock again: pih lock\n" % (file, problem))
    return lock

def _problem(lock):
    """Why nothing can be built from this, or None."""
    schema = lock.get("schema") if type(lock) == "dict" else None
    if schema != 1:
        return "lock schema %s is not 1" % json.encode(schema)
    for key in ["artifacts", "build", "limits", "plan", "profile", "target"]:
        if key not in lock:
            return key + ": missing"
    target = "%s/%s" % (lock["target"]["os"], lock["target"]["arch"])
    if target != "linux/x86_64":
        return "the target %s is not supported, but linux/x86_64 is" % target
    limits = lock["limits"]
    same = {
        "arch": lock["target"]["arch"],
        "expected_plan_sha256": lock["plan"]["sha256"],
        "kv_dtype": limits["kv_dtype"],
        "limits": {"context": limits["context"], "seqs": limits["batch"], "tokens": limits["tokens"]},
        "spill": limits["spill"],
    }
    for step in lock["build"]["steps"]:
        for key, said in same.items():
            found = step["params"].get(key, said)
            if found != said:
                return "step '%s' has %s %s, the lock %s" % (step["id"], key, _shown(found), _shown(said))
    return None

def _shown(value):
    return "'%s'" % value if type(value) == "string" else json.encode(value)

def _download(rctx, output):
    """The artifact, checked by Bazel against the lock's digest, and here against its size."""
    env = rctx.os.environ
    cache = env.get("XDG_CACHE_HOME") or env.get("HOME", "") + "/.cache"
    path = "%s/sha256/%s" % (env.get("PIH_STORE") or cache + "/pih", rctx.attr.sha256)
    if not path.startswith("/"):  # pih would look from another folder than Bazel, and fill another store
        name = "PIH_STORE" if env.get("PIH_STORE") else "XDG_CACHE_HOME" if env.get("XDG_CACHE_HOME") else "HOME"
        fail("\n\n%s is not an absolute path: %s.\n  to fix: set it to one, in pih's environment too\n" % (name, env.get(name, "")))
    done = rctx.download(
        url = [_url(path), "https://pih.invalid/sha256/" + rctx.attr.sha256],
        output = output,
        sha256 = rctx.attr.sha256,
        allow_fail = True,
    )
    if not done.success:
        found = "is damaged in PIH's store" if rctx.path(path).exists else "is not in PIH's store"
        beyond = [c for c in path.elems() if c in _BEYOND]
        locale = "; Bazel's server needs a locale of UTF-8 to read %s: bazel shutdown, export LC_ALL=C.UTF-8" % path
        fail("\n\n%s (sha256 %s) %s.\n  to fix: pih fetch --profile %s%s\n" %
             (rctx.attr.title, rctx.attr.sha256, found, rctx.attr.profile + rctx.attr.option, locale if beyond else ""))
    size = rctx.execute(["wc", "-c", output]).stdout.strip().split(" ")[0]  # '' where the host has no such program
    if size and size != rctx.attr.length:
        fail("\n\n%s (sha256 %s): the lock says %s bytes, and the file of this digest has %s.\n" %
             (rctx.attr.title, rctx.attr.sha256, rctx.attr.length, size) +
             "  to fix: write the lock again: pih lock --profile %s\n" % rctx.attr.profile)

def _artifact_impl(rctx):
    _download(rctx, "file")
    rctx.file("BUILD.bazel", 'exports_files(["file"])\n')

def _seed_impl(rctx):
    _download(rctx, "seed.tar")
    rctx.extract("seed.tar")
    rctx.file("BUILD.bazel", 'exports_files(["busybox"])\n')

_ATTRS = {
    "length": attr.string(doc = "in bytes: more than an int of Bazel's may have", mandatory = True),
    "option": attr.string(doc = "what fetching it needs besides its profile"),
    "profile": attr.string(doc = "whose artifact it is"),
    "sha256": attr.string(mandatory = True),
    "title": attr.string(doc = "name and version, for people"),
}
_ENVIRON = ["HOME", "PIH_STORE", "XDG_CACHE_HOME"]

pih_artifact = repository_rule(
    doc = "A file that the lock names by its digest.",
    implementation = _artifact_impl,
    attrs = _ATTRS,
    environ = _ENVIRON,
)

pih_seed = repository_rule(
    doc = "The first executable of a build, out of the tar that `pih fetch` makes.",
    implementation = _seed_impl,
    attrs = _ATTRS,
    environ = _ENVIRON,
)

def _word(text):
    """As a part of a repository's name."""
    return "".join([c if c.isalnum() or c in "-._" else "_" for c in text.elems()])

def _repository(hub, key, name):
    return "%s.%s.%s" % (hub, _word(key).replace(".lock.json", ""), _word(name))

def key_of(lock):
    """A lock's name within its hub: that of its file. lock: a label, or its text."""
    return str(lock).replace(":", "/").split("/")[-1]

def _of_image(build):
    """Names of the artifacts that the image is made from."""
    names = build["interpreter"] + [build["seed"]["deb"]]
    needed = {build["steps"][-1]["id"]: True}
    for step in reversed(build["steps"]):  # an input comes before what takes it
        if step["id"] in needed:
            needed.update([(item, True) for item in step["steps"]])
            names = names + step["artifacts"] + step["tools"]
    return names

def declare(hub, key, lock):
    """The repositories of a lock's artifacts.

    Args:
      hub: name of the repository that knows the lock's graph
      key: the lock's name within the hub
      lock: its content, decoded
    """
    profile = lock["profile"]["file"]
    of_image = {name: True for name in _of_image(lock["build"])}
    for item in lock["artifacts"]:
        pih_artifact(
            name = _repository(hub, key, item["name"]),
            option = "" if item["name"] in of_image else " --weights",
            profile = profile,
            sha256 = item["sha256"],
            length = str(item["size"]),
            title = "%s %s" % (item["name"], item["version"]),
        )
    pih_seed(
        name = _repository(hub, key, "seed"),
        profile = profile,
        sha256 = lock["build"]["seed"]["sha256"],
        length = str(lock["build"]["seed"]["size"]),
        title = "the seed that is made from " + lock["build"]["seed"]["deb"],
    )

_DEFS = """load("@pih//tools/bazel:defs.bzl", _bundle = "pih_bundle", _lock_test = "pih_lock_test")

_GRAPHS = {%s
}

def pih_bundle(name, lock, **kwargs):
    _bundle(name, lock, _GRAPHS, **kwargs)

pih_lock_test = _lock_test
"""

_ARTIFACTS = """load("@pih//tools/bazel:lock.bzl", "declare")

_LOCKS = %r

def artifacts():
    for key in _LOCKS:
        declare(%r, key, _LOCKS[key])
"""

def _graph(hub, key, lock):
    """A graph as text of a .bzl file, where labels can be."""
    files = ["%r: Label(\"@%s//:file\")" % (item["name"], _repository(hub, key, item["name"])) for item in lock["artifacts"]]
    seed = "@%s//:busybox" % _repository(hub, key, "seed")
    parts = [key, lock["build"], ", ".join(files), seed]
    return "\n    %r: struct(build = %r, files = {%s}, seed = Label(%r))," % tuple(parts)

def _locks_impl(rctx):
    graphs, locks = "", {}
    for label in rctx.attr.files:
        key, lock = key_of(label), decoded(label, rctx.read(label))
        if key in locks:
            fail("two locks are named %s: give one of them a hub of its own" % key)
        graphs += _graph(rctx.attr.hub, key, lock)
        locks[key] = {name: lock[name] for name in ["artifacts", "build", "profile"]}
    rctx.file("BUILD.bazel", "")
    rctx.file("defs.bzl", _DEFS % graphs)
    rctx.file("artifacts.bzl", _ARTIFACTS % (locks, rctx.attr.hub))

pih_locks_hub = repository_rule(
    doc = "The build graphs of locks: load pih_bundle from its defs.bzl.",
    implementation = _locks_impl,
    attrs = {"files": attr.label_list(allow_files = True, mandatory = True), "hub": attr.string(mandatory = True)},
)

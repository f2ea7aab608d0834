"""The suite over a plugin, as a test asks it."""

from contextlib import closing

from pih.conformance import new, suite
from tests.support.artifacts import artifact
from tests.support.program import ROOT

PACKAGE = "pih_backend_made"
START = "    backend = Backend("


def nothing(_artifact):
    raise AssertionError("no compiler is needed")


def bring(_artifact):
    return artifact("wheel", "ziglang")


def outcomes(folder, bring=nothing):
    return {check.name: check for check in suite.check(folder, ROOT, bring)}


def found(folder, name, bring=nothing):
    """The check of this name; those after it are not waited for."""
    with closing(suite.check(folder, ROOT, bring)) as made:
        names = []
        for check in made:
            if check.name == name:
                return check
            names.append(check.name)
    raise AssertionError(names)


def pack(folder, text=lambda text: text):
    """PIH's own kernels as a pack from outside, with one source changed."""
    new.write("kernels", "made", folder, ROOT)
    path = folder / "kernels" / "rms_norm.h"
    before = path.read_text()
    path.write_text(text(before))
    return folder

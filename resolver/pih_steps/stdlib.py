"""What a static look at Python's standard library cannot know, each with its reason.

Written for one version of Python (`closure.PYTHON`) and checked against it by the tests.
"""

from __future__ import annotations

from pih_steps import closure
from pih_steps.closure import Module

# Modules that the interpreter itself or a codec's name asks for.
STARTUP = {
    "encodings.ascii": "codec that the application names",
    "encodings.idna": "codec that socket.getaddrinfo uses for every host name",
    "encodings.latin_1": "codec of HTTP headers",
    "encodings.raw_unicode_escape": "codec that pickle names",
    "encodings.unicode_escape": "codec that templates name",
    "encodings.utf_8": "codec of the interpreter's start",
    "encodings.utf_8_sig": "codec that the site module names",
    "os": "the interpreter finds its library by it",
    "site": "part of the interpreter's start",
}
# Imports that compiled modules make.
ADDED: dict[str, tuple[str, ...]] = {
    "_asyncio": ("asyncio",),
    "_ctypes": ("ctypes",),
    "_datetime": ("_strptime",),
    "datetime": ("_strptime",),
}
# (importer, imported) → why the edge is not followed. All are imports inside functions that no server
# calls, or guarded ones whose absence the importer handles.
CUTS: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [("abc", "_py_abc"), ("decimal", "_pydecimal")],
        "the Python twin of a compiled module that is there",
    ),
    **dict.fromkeys(
        [("*", "doctest"), ("*", "test"), ("random", "statistics")],
        "a module's test of itself",
    ),
    **dict.fromkeys(
        [
            *((name, "argparse") for name in ("ast", "calendar", "dis", "inspect", "tokenize", "zipfile")),
            *((name, "getopt") for name in ("base64", "mimetypes", "quopri")),
        ],
        "a module run as a program",
    ),
    **dict.fromkeys(
        [("_sitebuiltins", "pydoc"), ("site", "readline"), ("site", "rlcompleter")],
        "the interactive interpreter",
    ),
    **dict.fromkeys(
        [("site", "sitecustomize"), ("site", "usercustomize")],
        "changes to the interpreter that a host would make; a bundle is whole without",
    ),
    **dict.fromkeys(
        [("*", "bz2"), ("*", "lzma"), ("shutil", "tarfile"), ("shutil", "zipfile"), ("zipfile", "py_compile")],
        "archives and compressions that no bundle reads",
    ),
    ("platform", "plistlib"): "another operating system",
    **dict.fromkeys(
        [
            ("concurrent.futures", "concurrent.futures.process"),
            ("multiprocessing.connection", "xmlrpc"),
            *(
                ("multiprocessing.context", f"multiprocessing.{name}")
                for name in ("connection", "forkserver", "managers", "pool", "popen_fork", "popen_forkserver")
            ),
            *(
                ("multiprocessing.context", f"multiprocessing.{name}")
                for name in ("popen_spawn_posix", "queues", "sharedctypes", "spawn", "synchronize", "util")
            ),
        ],
        "pools of processes: the worker is one process",
    ),
    ("email.message", "email.policy"): "messages in the newer mail interface, which no HTTP library makes",
    ("logging.handlers", "smtplib"): "log records by mail",
    ("logging.handlers", "http.client"): "log records by HTTP",
    ("logging.handlers", "email.utils"): "log records by mail",
    ("uuid", "_uuid"): "identifiers made of the host's address",
}
# Licence notes for packages that keep their copyright file in a package of their own.
NOTICES = {
    "gcc-12": (
        "The GCC runtime libraries are under the GNU General Public License, version 3 or later,\n"
        "with the GCC Runtime Library Exception, version 3.1.\n"
    )
}


def references(name: str, module: Module) -> set[str]:
    """Names that a module of the standard library may load."""
    found = closure.imports(name, module) if module.text else set()
    return found | set(ADDED.get(name, ()))

"""Which files of the step program each step imports: declared inputs, like everything a step reads.

So an edit of the kernel compiler does not pack weights again. A table and not a search, so that a lock does not
depend on the text of the code; a test compares it with the imports that the code has.
"""

from __future__ import annotations

_EVERY = ("__init__", "__main__", "plugins", "spec")
_LAYERS = ("layer", "tar")
_MODULES = ("closure", "pyc")
_STEPS: dict[str, tuple[str, ...]] = {
    "app": ("app", *_LAYERS, *_MODULES),
    "base": ("base", "deb", "elf", "stdlib", *_LAYERS, *_MODULES),
    "cubin": ("cubin", "cubin_elf", "kernels"),
    "digests": ("digests",),
    "image": ("devices", "image", "oci", "reach", "source", *_LAYERS),
    "imports": ("app", "elf", "imports", "wheels", *_LAYERS, *_MODULES),
    "kernels": ("kernels",),
    "model": ("model", "lower"),
    "plan": ("plan", "lower"),
    "weights": ("weights", "lower"),
    "wheels": ("elf", "wheels", *_LAYERS, *_MODULES),
}
_RUNTIME = ("__init__", "errors")
_RUNTIME_OF_APP = (*_RUNTIME, "canonical")
_RUNTIME_OF_LOWERING = (*_RUNTIME, "numbers", "ops", "plan")
_RUNTIME_OF_DIGESTS = (*_RUNTIME, "digests")
_RUNTIMES = {"lower": _RUNTIME_OF_LOWERING, "app": _RUNTIME_OF_APP, "digests": _RUNTIME_OF_DIGESTS}
_PACKAGES = frozenset({"lower"})


def program(run: str) -> tuple[str, ...]:
    """Files and folders of the program that runs this step."""
    runtime = next((found for part, found in _RUNTIMES.items() if part in _STEPS[run]), _RUNTIME)
    steps = [f"resolver/pih_steps/{name}" + ("" if name in _PACKAGES else ".py") for name in (*_EVERY, *_STEPS[run])]
    return tuple(sorted(steps) + [f"runtime/pih_runtime/{name}.py" for name in runtime])

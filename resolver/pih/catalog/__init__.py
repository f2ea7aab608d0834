"""The catalog: plugin.toml files, checked, as data. Those of the source tree; `trust` adds the ones from outside.

May import `structure`, `toml_lines`. Importing a plugin's code is never needed to choose it.
"""

from pih.catalog.data import (
    Activation,
    BuildPart,
    Catalog,
    Constraint,
    Fused,
    Kernel,
    Kind,
    Layout,
    Manifest,
    Mode,
    Permissions,
    Report,
    RuntimePart,
    Tested,
)
from pih.catalog.manifest import CAPABILITIES, MAX_BYTES, abi_problem, fingerprint, parse, precedence, variable_problem
from pih.catalog.tree import load

__all__ = [
    "CAPABILITIES",
    "MAX_BYTES",
    "Activation",
    "BuildPart",
    "Catalog",
    "Constraint",
    "Fused",
    "Kernel",
    "Kind",
    "Layout",
    "Manifest",
    "Mode",
    "Permissions",
    "Report",
    "RuntimePart",
    "Tested",
    "abi_problem",
    "fingerprint",
    "load",
    "parse",
    "precedence",
    "variable_problem",
]

"""SPDX licence expressions, as locks and SBOMs hold them. Imports nothing of PIH.

What is not known is NOASSERTION, SPDX's own word for it: nothing is guessed from a name that several licences share.
"""

from __future__ import annotations

from collections.abc import Iterable

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

NOASSERTION = "NOASSERTION"
# Names that people and package indexes use for exactly one licence. "BSD License" and "Apache Software License" are
# not among them: there are several of each.
_NAMES = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "gnu general public license v3 (gplv3)": "GPL-3.0-only",
    "gnu general public license v3 or later (gplv3+)": "GPL-3.0-or-later",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
    "zlib/libpng license": "Zlib",
}


def expression(text: str) -> str:
    """The expression in SPDX's own spelling; NOASSERTION for what is not one and does not name just one licence."""
    words = text.strip()
    try:
        return str(canonicalize_license_expression(_NAMES.get(words.lower(), words)))
    except InvalidLicenseExpression:
        return NOASSERTION


def both(expressions: Iterable[str]) -> str:
    """The expression of something under all of these at once; NOASSERTION where one of them is not known."""
    parts: dict[str, None] = {}
    for whole in expressions:
        parts |= dict.fromkeys([whole] if " OR " in whole else whole.split(" AND "))
    if not parts or NOASSERTION in parts:
        return NOASSERTION
    return " AND ".join(f"({part})" if len(parts) > 1 and " OR " in part else part for part in parts)

"""Where plugins from outside the source tree come from, and why some of them are no candidates.

May import nothing of `pih`: the catalog holds these, `trust` makes them.
"""

from __future__ import annotations

import attrs

LOCAL = "local"  # trusted on the profile's word, unsigned


@attrs.frozen
class Origin:
    """Where a plugin outside the source tree comes from.

    source: as its user names it. place: qualifiers of the package URL that finds it again. trust: 'local', or the
    fingerprint of the key that signed it. sha256, size: of its canonical archive. pins: its own pins.json, b'' without.
    entry: number of the profile's [[plugins]] table that names it, -1 for none. held: whether the lock before has
    exactly this, from there. rivals: other places with other files of the same version, where nothing says which is
    meant: it must not be chosen. copies: other places with the same files.
    """

    source: str
    place: dict[str, str]
    trust: str
    sha256: str
    size: int
    pins: bytes = b""
    entry: int = -1
    held: bool = False
    rivals: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


@attrs.frozen
class Held:
    """A plugin from outside as the lock before has it; the fields are those of `Origin`."""

    id: str
    version: str
    place: dict[str, str]
    trust: str
    sha256: str


@attrs.frozen
class Refused:
    """A plugin from outside that is no candidate, and why. version, provides: as far as its manifest could be read.

    table: its version matrix, where that is what rules it out. entry: as in `Origin`.
    """

    id: str
    version: str
    source: str
    provides: tuple[str, ...]
    why: str
    fix: str
    table: str = ""
    entry: int = -1

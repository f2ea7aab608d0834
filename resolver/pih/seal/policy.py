"""Who must vouch for a bundle: keys with names and dates of expiry, and how many of them have to sign.

    threshold = 2

    [[key]]
    name = "build server"
    public = "MCowBQYDK2VwAyEA…"     # the line that `pih key show FILE` prints
    expires = 2027-01-01             # from this day on, at 00:00 UTC, its signature does not count

Signatures carry no time, so a key that has expired vouches for nothing, whenever it signed.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import attrs

from pih.reading import read_at_most, toml_of
from pih.structure import Path as Keys
from pih.structure import StructureError, dotted, structure
from pih.toml_lines import key_lines, line_of
from pih.trust import keys
from pih_runtime.errors import UsageError

_MAX_BYTES = 1 << 20


@attrs.frozen
class Key:
    """A key that may vouch. public: base64 of its 32 bytes. expires: the moment, None for never."""

    name: str
    public: str
    expires: dt.datetime | None = None

    @property
    def fingerprint(self) -> str:
        """The key's short name."""
        return keys.fingerprint(self.public)

    @property
    def words(self) -> str:
        """How it is called in messages."""
        return f"{self.name} ({self.fingerprint})" if self.name else self.fingerprint


@attrs.frozen
class Policy:
    """At least `threshold` of the keys must have signed each statement."""

    threshold: int
    keys: tuple[Key, ...]


@attrs.frozen
class _Key:
    name: str
    public: str
    expires: str | None = None


@attrs.frozen
class _File:
    threshold: int
    key: tuple[_Key, ...]


def of_keys(paths: tuple[Path, ...]) -> Policy:
    """All of these keys must have signed."""
    found = {keys.load_public(path): path for path in paths}
    return Policy(len(found), tuple(Key(path.name, public) for public, path in found.items()))


def load(path: Path) -> Policy:
    """Read a policy; raises UsageError with line and key for one that is not right."""
    try:
        text = read_at_most(path, _MAX_BYTES).decode()
        data = toml_of(text)
    except OSError as problem:
        raise UsageError(
            f"cannot read the policy: {problem.strerror}", where=str(path), fix="give its path"
        ) from problem
    except ValueError as problem:
        raise UsageError(f"not TOML: {problem}", where=str(path), fix="correct the syntax") from problem
    lines = key_lines(text)

    def refused(place: Keys, what: str, fix: str) -> UsageError:
        return UsageError(f"{dotted(place)}: {what}", where=f"{path}:{line_of(lines, place)}", fix=fix)

    try:
        found = structure(_dates_as_text(data), _File)
    except StructureError as failure:
        first = failure.problems[0]
        raise refused(first.path, first.what, first.fix or "see `pih verify --help`") from failure
    made: list[Key] = []
    for number, item in enumerate(found.key):
        place: Keys = ("key", number)
        try:
            public = keys.from_pem_body(item.public)
        except ValueError as problem:
            raise refused((*place, "public"), str(problem), "copy the line of `pih key show FILE`") from problem
        if any(public == other.public for other in made):
            raise refused((*place, "public"), "this key is here twice", "one key is one vote: take one of the two out")
        try:
            expires = None if item.expires is None else _moment(item.expires)
        except ValueError as problem:
            raise refused((*place, "expires"), str(problem), "write a date, like 2027-01-01") from problem
        made.append(Key(item.name, public, expires))
    if not 1 <= found.threshold <= len(made):
        raise refused(("threshold",), f"{found.threshold} of {len(made)} keys cannot sign", f"1 to {len(made)}")
    return Policy(found.threshold, tuple(made))


def _dates_as_text(data: Any) -> Any:
    """TOML's dates, anywhere, as the text that they are written with."""
    if isinstance(data, dt.date | dt.time):
        return data.isoformat()
    if isinstance(data, dict):
        return {key: _dates_as_text(value) for key, value in data.items()}
    return [_dates_as_text(item) for item in data] if isinstance(data, list) else data


def _moment(text: str) -> dt.datetime:
    """A time without a zone is UTC."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)

"""The text of reasons, as locks hold them: a line of the profile, then links: `x.toml:7 model.plugin = "llama" → …`."""

from __future__ import annotations

import re

from pih.profile import Profile
from pih.resolve.explain import ARROW
from pih.toml_lines import line_of

# A chain: the profile's line first, what it is a reason for last.
Chain = tuple[str, ...]
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+) (?P<key>[a-z_]+(?:\.[a-z_]+)+) = ")


def parts(reason: str) -> Chain:
    """The links of a reason's text."""
    return tuple(reason.split(ARROW))


def joined(chain: Chain) -> str:
    """A chain as one line of text."""
    return ARROW.join(chain)


def is_profile_line(text: str) -> bool:
    """Whether it reads `FILE:LINE SECTION.KEY = …`."""
    return _LINE.match(text) is not None


def sets(text: str, key: str) -> bool:
    """Whether it is the profile's line of this key, e.g. `model.weights`."""
    found = _LINE.match(text)
    return found is not None and found["key"] == key


def current(chain: Chain, profile: Profile) -> Chain:
    """The chain with the line number that its key has now: a comment that moved it leaves the lock valid."""
    found = _LINE.match(chain[0])
    if found is None:
        return chain
    line = line_of(profile.lines, tuple(found["key"].split(".")))
    return (f"{found['file']}:{line}{chain[0][found.end('line') :]}", *chain[1:])

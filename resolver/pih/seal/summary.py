"""What a seal says of itself, unchecked: for people who look at a bundle. `verify` is who judges."""

from __future__ import annotations

import attrs

from pih.bundle.layout import Layout
from pih.seal import dsse, referrers
from pih_runtime.errors import SealError


@attrs.frozen
class Summary:
    """documents: types of what is attached. signers: ids of the keys in whose names every statement is signed."""

    documents: tuple[str, ...]
    signers: tuple[str, ...]


def of(image: Layout) -> Summary | None:
    """The seal of a layout's image; None where it has none. Raises SealError for one that cannot be read."""
    documents = referrers.read(image)
    if not documents:
        return None
    try:
        envelopes = [dsse.parse(documents[kind]) for kind in referrers.STATEMENTS.values()]
    except dsse.EnvelopeError as problem:
        raise SealError(str(problem), where=str(image.path), fix="pih verify says more") from problem
    return Summary(tuple(sorted(documents)), dsse.named(envelopes))

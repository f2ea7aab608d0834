"""Is a signature to be believed? The keyring's answer, with the reason where it is no."""

from __future__ import annotations

import shlex

import attrs

from pih.structure import show
from pih.trust import sign
from pih.trust.keyring import Keyring
from pih.trust.sign import Signature

_SIGNED = {"plugin": "it", "catalog": "its catalog's list"}  # what a signature of this word is of
_CHANGED = {"plugin": "a file of it", "catalog": "catalog.json"}


@attrs.frozen
class Verdict:
    """key: the fingerprint of the believed signer, '' where there is none; why and fix then say what is wrong."""

    key: str
    why: str = ""
    fix: str = ""


def judge(signature: Signature | None, word: str, digest: str, keyring: Keyring, path: str, entry: str = "") -> Verdict:
    """Whose word there is for `digest`. path: how the user names what is signed. entry: how a profile names it."""
    local = f"trust this place in the profile: [[plugins]] {entry or f'path = {show(path)}'}, trust = {show('local')}"
    if signature is None:
        return Verdict("", "it is not signed", local)
    name = signature.fingerprint
    if not sign.made(signature.key, word, digest, signature):
        return Verdict(
            "",
            f"{_SIGNED[word]} is not what {name} signed: {_CHANGED[word]}, or the signature, was changed afterwards",
            "get it again from its publisher",
        )
    key = keyring.find(name)
    if key is None:
        return Verdict(
            "",
            f"it is signed by {name}, which is not in your keyring",
            f"pih catalog add {shlex.quote(str(path))}, or {local}",
        )
    if key.state == "revoked":
        return Verdict("", f"its key {name} was revoked: {key.note}", "get a release that another key has signed")
    if key.state == "rotated":
        return Verdict("", f"its key {name} was replaced by {key.note}", "get a release that the new key has signed")
    return Verdict(name)

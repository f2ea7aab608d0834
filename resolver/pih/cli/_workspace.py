"""What several commands start from: the source tree, the store, a profile with its lock, a built image."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import attrs
import click

from pih import lock as locks
from pih import pins, profile, stale, trust
from pih.build import graph, pin
from pih.build.progress import Listener, Withdrawn, renderer
from pih.build.store import Store, default_root, open_store
from pih.bundle import own as owned
from pih.catalog import Catalog
from pih.cli import _path, _terminal
from pih.lock import Artifact, Lock
from pih.profile import Profile
from pih.trust import Offers
from pih_runtime.errors import PihError, SealError, UsageError

SOURCE_ROOT = Path(__file__).resolve().parents[3]
_OF_A_PROFILE = ("pih lock", "pih fetch")  # what a fix may end with
IMAGE, WEIGHTS, DIGESTS = "image", "weights", "digests"  # steps of every build graph

Command = TypeVar("Command", bound=Callable[..., object])


def profile_option(command: Command) -> Command:
    """`--profile FILE`, required."""
    option = click.option(
        "--profile",
        "profile_path",
        type=_path.Path(path_type=Path),
        required=True,
        metavar="FILE",
        help="The deployment profile (TOML).",
    )
    return option(_named_in_fixes(command))


def profile_choice(what: str) -> Callable[[Command], Command]:
    """`--profile FILE`, in place of something else. what: its help."""
    path = _path.Path(path_type=Path)
    option = click.option("--profile", "profile_path", type=path, metavar="FILE", help=what)
    return lambda command: option(_named_in_fixes(command))


def _named_in_fixes(command: Command) -> Command:
    """What finds a lock or a file wrong knows no profile, and what to type then needs one."""

    @functools.wraps(command)
    def named(*arguments: object, **given: object) -> object:
        try:
            return command(*arguments, **given)
        except PihError as problem:
            if given["profile_path"] and problem.fix.endswith(_OF_A_PROFILE):
                problem.fix += f" --profile {shlex.quote(str(given['profile_path']))}"
            raise

    return cast("Command", named)


def offline_option(command: Command) -> Command:
    """`--offline`."""
    return click.option("--offline", is_flag=True, help="Use the store and PIH_MIRROR alone; fetch nothing.")(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def one_form(**asked: bool) -> str:
    """The form of the answer by its option's name, '' for none; raises UsageError where several are asked for."""
    found = [name for name, given in asked.items() if given]
    if len(found) > 1:
        raise UsageError(f"{' and '.join(f'--{name}' for name in found)} do not go together", fix="give one of them")
    return "".join(found)


def store() -> Store:
    """The user's store."""
    return open_store(default_root(os.environ))


@contextmanager
def own(layout: Path) -> Iterator[None]:
    """Where a layout is the store's own, and the block finds it damaged: say so, and drop it. In Nix's, say how to."""
    try:
        yield
    except SealError as problem:
        from pih.build import nix

        if nix.holds(layout):
            problem.fix = nix.let_go(layout, store())
        if layout.name != "output":  # no store is opened, or made, for what cannot lie in one
            raise
        with renderer() as listener, owned.dropped_if_damaged(layout.absolute(), store(), listener):
            raise


@attrs.frozen
class Deployment:
    """A profile and the lock that answers it. withdrawn: why, for plugins that their publisher has withdrawn since."""

    profile: Profile
    lock: Lock
    lock_path: Path
    withdrawn: dict[str, str]


def deployment(profile_path: Path, *, offline: bool, listener: Listener) -> Deployment:
    """The profile's lock, checked against profile and catalog; resolved only where there is none yet."""
    intent = profile.load(profile_path)
    offers = offers_of(intent)
    path = lock_path(intent)
    if path.exists():
        found = locks.read(path)
        known = beside(offers, found)
        stale.check(found, intent, known)
        graph.check(found)
        _check_unchanged(found, intent, known, listener)
    else:
        found = resolve(intent, offers, None, offline=offline, listener=listener)
        locks.write(found, path)
    return Deployment(intent, found, path, withdrawn(found, offers, intent, listener))


def _check_unchanged(found: Lock, intent: Profile, known: Catalog, listener: Listener) -> None:
    from pih.resolve import unchanged

    unchanged.check(found, intent, known, _held(store(), intent, listener), default_root(os.environ) / "lowered")


def _held(shelf: Store, intent: Profile, listener: Listener) -> Callable[[Artifact], Path]:
    """A function: artifact → its file, from the store, PIH_MIRROR or beside the profile; else FetchError."""

    def held(artifact: Artifact) -> Path:
        from pih.build import fetch

        folder = intent.path.parent
        return fetch.one(shelf, lock_folder=folder, environment=os.environ, offline=True, listener=listener)(artifact)

    return held


def withdrawn(found: Lock, offers: Offers, intent: Profile, listener: Listener) -> dict[str, str]:
    """Why plugins of the lock were withdrawn by their publishers, told to the listener too."""
    gone = stale.withdrawn(found, beside(offers, found))
    for name, why in gone.items():
        fix = f"pih lock --profile {shlex.quote(str(intent.path))} --upgrade {name.partition(' ')[0]}"
        listener(Withdrawn(name, _terminal.printable(why), _terminal.printable(fix)))
    return gone


def offers_of(intent: Profile) -> Offers:
    """The plugins that a profile can have: the source tree's own, and those from outside."""
    return trust.load(SOURCE_ROOT, intent, os.environ)


def beside(offers: Offers, lock: Lock | None) -> Catalog:
    """The catalog for a lock that is there, or for a first one."""
    from pih.resolve import outside

    return offers.beside(outside.held(lock))


def lock_path(intent: Profile) -> Path:
    """Beside the profile; for `isa = "native"` in the store, since such a lock is for hosts like this one only."""
    if not intent.native:
        return locks.path_for(intent.path)
    folder = default_root(os.environ) / "native" / intent.sha256
    folder.mkdir(parents=True, exist_ok=True)
    return folder / locks.path_for(intent.path).name


def resolve(intent: Profile, offers: Offers, previous: Lock | None, *, offline: bool, listener: Listener) -> Lock:
    """The resolver, with the user's store and registries behind it."""
    from pih.resolve import text
    from pih.resolve.locking import lock as resolve_profile

    shelf, known = store(), beside(offers, previous)

    def bring(artifact: Artifact) -> Path:
        from pih.build import fetch  # what is locked already asks for no file

        folder = intent.path.parent
        get = fetch.one(shelf, lock_folder=folder, environment=os.environ, offline=offline, listener=listener)
        return get(artifact)

    ask = pin.of_source(shelf, os.environ)
    memo = default_root(os.environ) / "lowered"
    found = resolve_profile(intent, known, pins.load(SOURCE_ROOT), previous, fetch=bring, pin=ask, memo=memo)
    text.check(found, intent, SOURCE_ROOT, _held(shelf, intent, listener), memo)
    trust.check_named(intent, known)  # after the resolver, which says more where one of them is needed
    return found

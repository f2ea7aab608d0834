"""A catalog as sets of bits, one bit for each plugin, the most preferred first: what the search computes with.

Every set is made where it is first asked for, and kept: most of a large catalog is never looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pih.catalog import Manifest, precedence
from pih.resolve.rules import Misfit, Need, clash

Form = tuple[str, str, str]  # what of a need decides who can serve it: capability, specifier, plugin


class Candidates:
    """plugins: by bit."""

    def __init__(
        self,
        plugins: Iterable[Manifest],
        misfit: Callable[[Manifest], Misfit | None],
        rank: Callable[[Manifest], int],
    ) -> None:
        ordered = sorted(plugins, key=lambda plugin: (plugin.id, plugin.version))
        ordered.sort(key=lambda plugin: precedence(plugin.version), reverse=True)
        ordered.sort(key=rank)
        self.plugins = ordered
        self._misfit = misfit
        self._misfits: dict[int, Misfit | None] = {}
        self._served: dict[Form, int] = {}
        self._beside: dict[int, int] = {}
        self._required: dict[int, tuple[Form, ...]] = {}
        self._providers: defaultdict[str, int] = defaultdict(int)
        self._versions: defaultdict[str, int] = defaultdict(int)  # of an id
        self._excluding: defaultdict[str, int] = defaultdict(int)  # those that conflict with an id
        self._using: defaultdict[str, int] = defaultdict(int)  # those for which a capability is optional
        self._listening = 0
        for number, plugin in enumerate(ordered):
            bit = 1 << number
            self._versions[plugin.id] |= bit
            for index, names in (
                (self._providers, plugin.provides),
                (self._excluding, plugin.conflicts),
                (self._using, plugin.optional),
            ):
                for name in names:
                    index[name] |= bit
            if plugin.permissions.network == "listen":
                self._listening |= bit

    def providers(self, capability: str) -> int:
        """Every plugin that gives it."""
        return self._providers.get(capability, 0)

    def misfit(self, number: int) -> Misfit | None:
        """Why this plugin is out whatever else is chosen."""
        if number not in self._misfits:
            self._misfits[number] = self._misfit(self.plugins[number])
        return self._misfits[number]

    def serving(self, form: Form) -> int:
        """Those that serve such a need, as far as the need and the target can say."""
        if form not in self._served:
            capability, specifier, named = form
            versions: defaultdict[Version, int] = defaultdict(int)
            wanted = self.providers(capability)
            for number in numbers(wanted & self._versions.get(named, 0) if named else wanted):
                versions[Version(self.plugins[number].provides[capability])] |= 1 << number
            fitting = SpecifierSet(specifier).filter(versions, prereleases=True)
            found = 0
            for version in fitting:
                found |= versions[version]
            for number in numbers(found):
                if self.misfit(number) is not None:
                    found ^= 1 << number
            self._served[form] = found
        return self._served[form]

    def against(self, number: int) -> int:
        """Those that cannot stand beside this plugin."""
        if number not in self._beside:
            plugin = self.plugins[number]
            out, doubtful = self._versions[plugin.id], self._excluding.get(plugin.id, 0)
            for capability in plugin.provides:
                out |= self.providers(capability)
                doubtful |= self._using.get(capability, 0)
            for capability in plugin.optional:
                doubtful |= self.providers(capability)
            for identity in plugin.conflicts:
                doubtful |= self._versions.get(identity, 0)
            if plugin.permissions.network == "listen":
                doubtful |= self._listening
            for other in numbers(doubtful & ~out):
                if clash(plugin, self.plugins[other]) is not None:
                    out |= 1 << other
            self._beside[number] = out & ~(1 << number)
        return self._beside[number]

    def required(self, number: int) -> tuple[Form, ...]:
        """What this plugin requires."""
        if number not in self._required:
            requires = self.plugins[number].requires
            self._required[number] = tuple((capability, requires[capability], "") for capability in sorted(requires))
        return self._required[number]


def form_of(need: Need) -> Form:
    """What of a need decides who can serve it."""
    return (need.capability, need.specifier, need.plugin)


def numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest

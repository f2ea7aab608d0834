"""The solver: which plugins serve the capabilities that a deployment needs.

A complete search in a fixed order: needs as they arise, candidates by preference, then final releases before
pre-releases, then highest version, then id; the catalog's order does not matter. One plugin serves a capability in a
deployment, since the worker knows a provider by its capability alone. What is not needed is not chosen.

A dead end teaches the search a clause, "whatever serves all of these needs has one of these plugins", which it
resolves from what stood against each candidate. It goes back to the last choice that broke the clause, and never
again makes one that breaks it. A circle of plugins that would each start after the next teaches one too. Decision
0002 says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_

import attrs

from pih.catalog import Manifest
from pih.resolve.candidates import Candidates, Form, form_of, numbers
from pih.resolve.order import circle
from pih.resolve.outcome import DeadEnd, Served, Solution
from pih.resolve.rules import Misfit, Need, needs_of, refusal

_TOLD = 8  # dead ends that an explanation may draw on
STEPS = 1_000_000  # candidates and clauses that a search looks at before it is given up: some ten seconds


def solve(
    roots: Iterable[Need],
    candidates: Iterable[Manifest],
    misfit: Callable[[Manifest], Misfit | None],
    rank: Callable[[Manifest], int] = lambda _: 0,
    limit: int = STEPS,
) -> Solution | DeadEnd:
    """The plugins for `roots`, or the first dead end of the most preferred path.

    Where nothing but circles serves them, the first choice with a circle in it (`order.circle`).
    misfit: why a plugin is out whatever else is chosen. rank: preference between plugins, the lowest first.
    limit: steps; a number and no time, so that every host gives the same answer.
    """
    return _Search(Candidates(candidates, misfit, rank), limit).run(tuple(roots))


@attrs.frozen
class _Clause:
    """Whatever serves all of these needs has one of these plugins (bits)."""

    needs: frozenset[Form]
    plugins: int


@attrs.define
class _Frame:
    """A need on the path, and where its search stands.

    left: candidates to try. needs, plugins: of the clause that holds once they have failed. number: the chosen one.
    fresh: needs that it brought, None where it was chosen before for another need. out: as it was before it.
    """

    need: Need
    rest: tuple[Need, ...]
    left: int
    needs: set[Form]
    plugins: int
    number: int = -1
    fresh: tuple[Form, ...] | None = None
    out: int = 0


class _Search:
    """The path, and what dead ends have taught.

    ends: the first dead ends. circular: the first choice that serves all and has a circle in it. chosen, out: plugins
    on the path, and those that cannot stand beside them. asked: the path's needs, by capability. open: of each of
    these, after each of its needs, the plugins that serve all. watched: clauses by a need of theirs that is not on the
    path, or a plugin that is not out: until it is, the clause is not broken.
    """

    def __init__(self, space: Candidates, limit: int) -> None:
        self.space, self.limit, self.steps = space, limit, 0
        self.frames: list[_Frame] = []
        self.ends: list[DeadEnd] = []
        self.circular: Solution | None = None
        self.chosen, self.out = 0, 0
        self.asked: defaultdict[str, list[Form]] = defaultdict(list)
        self.open: dict[str, list[int]] = {}
        self.present: set[Form] = set()
        self.watched: defaultdict[Form | int, list[_Clause]] = defaultdict(list)
        self.watching = 0  # bits of plugins that a clause is watched by

    def run(self, roots: tuple[Need, ...]) -> Solution | DeadEnd:
        self._ask(tuple(dict.fromkeys(map(form_of, roots))))
        needs = roots
        while needs or self._goes_round():
            if needs:
                self.frames.append(self._frame(needs))
            elif not self._leave(self._way_round()):
                return self._failed()
            while not self._advance(self.frames[-1]):
                if not self._back():
                    return self._failed()
                if self.steps > self.limit:
                    return self._failed(given_up=True)
            last = self.frames[-1]
            needs = (*last.rest, *(needs_of(self.space.plugins[last.number]) if last.fresh is not None else ()))
        return self._solution()

    @property
    def looking_ahead(self) -> bool:
        """Not before all is on record that an explanation is made of: the first dead ends whole, or a circle."""
        return len(self.ends) == _TOLD or self.circular is not None

    def _failed(self, *, given_up: bool = False) -> Solution | DeadEnd:
        if self.circular is not None:
            return self.circular
        return attrs.evolve(self.ends[0], later=tuple(self.ends[1:]), steps=self.steps, given_up=given_up)

    def _solution(self) -> Solution:
        plugins = sorted((self.space.plugins[number] for number in numbers(self.chosen)), key=lambda plugin: plugin.id)
        return Solution(tuple(plugins), self._served(), self.steps)

    def _goes_round(self) -> bool:
        """Whether a choice that serves all has a circle in it; the first of them goes on record."""
        found = self._solution()
        if not circle(found):
            return False
        self.circular = self.circular or found
        return True

    def _way_round(self) -> _Clause:
        """That the plugins of a circle do not serve what they serve here, all at once."""
        around = set(circle(self._solution()))
        first = {self.space.plugins[frame.number].id: frame for frame in reversed(self.frames)}
        serving = {form_of(first[name].need): 1 << first[name].number for name in around}
        others = (self.space.serving(form) & ~bit for form, bit in serving.items())
        return _Clause(frozenset(serving), reduce(or_, others, 0))

    def _served(self) -> Served:
        return tuple((frame.need, self.space.plugins[frame.number]) for frame in self.frames)

    def _frame(self, needs: tuple[Need, ...]) -> _Frame:
        form = form_of(needs[0])
        left = self.space.serving(form)
        others = self.asked.get(form[0], []) if self.looking_ahead else []
        why = self._why(form, left, others, self.out)
        for other in why.needs:
            left &= self.space.serving(other)
        return _Frame(needs[0], needs[1:], left & ~self.out, set(why.needs), why.plugins)

    def _why(self, form: Form, serving: int, others: list[Form], out: int) -> _Clause:
        """Why nothing but what these needs leave, and is not out, can serve them: the fewest needs that say so."""
        needs, left = {form}, serving
        for other in others:
            if not left & ~out:
                break
            narrower = left & self.space.serving(other)
            if narrower & ~out != left & ~out:
                needs.add(other)
                left = narrower
        return _Clause(frozenset(needs), left & out)

    def _advance(self, frame: _Frame) -> bool:
        """Choose the frame's next candidate that nothing speaks against; False where there is none."""
        while frame.left:
            bit = frame.left & -frame.left
            frame.left ^= bit
            number = bit.bit_length() - 1
            self.steps += 1
            if bit & self.chosen:
                frame.number, frame.fresh = number, None
                return True
            broken = self._broken(number) if self.looking_ahead else None
            if broken is None:
                self._choose(frame, number)
                return True
            self._resolve(frame, number, broken)
        return False

    def _choose(self, frame: _Frame, number: int) -> None:
        frame.number, frame.out = number, self.out
        frame.fresh = tuple(form for form in self.space.required(number) if form not in self.present)
        self.chosen |= 1 << number
        self.out |= self.space.against(number)
        self._ask(frame.fresh)

    def _ask(self, forms: tuple[Form, ...]) -> None:
        for form in forms:
            self.present.add(form)
            self.asked[form[0]].append(form)
            now = self.open.setdefault(form[0], [-1])
            now.append(now[-1] & self.space.serving(form))

    def _back(self) -> bool:
        """Leave a dead end; False where no choice led there."""
        end = self.frames.pop()
        if not self.looking_ahead:
            self.ends.append(self._end(end.need))
        return self._leave(_Clause(frozenset(end.needs), end.plugins))

    def _leave(self, clause: _Clause) -> bool:
        """Go back to the last choice that broke the clause; False where none did."""
        while self.frames:
            frame = self.frames[-1]
            if frame.fresh is not None:
                to_blame = clause.plugins & self.out & ~frame.out or not clause.needs.isdisjoint(frame.fresh)
                self._take_back(frame, frame.fresh)
                if to_blame:
                    self._learn(clause)
                    self._resolve(frame, frame.number, clause)
                    return True
            self.frames.pop()
        return False

    def _end(self, need: Need) -> DeadEnd:
        served = self._served()
        chosen = {plugin.id: plugin for _, plugin in served}
        refusals = (
            refusal(self.space.plugins[number], need, self.space.misfit(number), chosen)
            for number in numbers(self.space.providers(need.capability))
        )
        return DeadEnd(need, tuple(item for item in refusals if item is not None), served)

    def _take_back(self, frame: _Frame, fresh: tuple[Form, ...]) -> None:
        self.chosen ^= 1 << frame.number
        self.out = frame.out
        for form in fresh:
            self.present.discard(form)
            self.asked[form[0]].pop()
            self.open[form[0]].pop()

    def _resolve(self, frame: _Frame, number: int, broken: _Clause) -> None:
        """A candidate breaks a clause: what the clause asks beside what the candidate itself brings, goes on record."""
        frame.needs |= broken.needs.difference(self.space.required(number))
        frame.plugins |= broken.plugins & ~self.space.against(number)

    def _broken(self, number: int) -> _Clause | None:
        """A clause that choosing this plugin would break: that a need is served, or one that a dead end taught."""
        required, out = self.space.required(number), self.out | self.space.against(number)
        fresh = tuple(form for form in required if form not in self.present)
        for form in fresh:
            serving = self.space.serving(form)
            if not serving & self.open.get(form[0], [-1])[-1] & ~out:
                return self._why(form, serving, self.asked.get(form[0], []), out)
        lost, left = out & ~self.out, ~out
        for capability, forms in self.asked.items():
            still = self.open[capability][-1]
            if still & lost and forms and not still & left:
                return self._why(forms[0], self.space.serving(forms[0]), forms[1:], out)
        return self._known(fresh, out)

    def _known(self, fresh: tuple[Form, ...], out: int) -> _Clause | None:
        present = self.present.union(fresh)
        signs: tuple[Form | int, ...] = (*fresh, *numbers(out & ~self.out & self.watching))
        for sign in signs:
            clauses = self.watched.pop(sign, [])
            while clauses:
                clause = clauses.pop()
                self.steps += 1
                if not self._watch(clause, present, out):
                    self.watched[sign] += [*clauses, clause]
                    return clause
        return None

    def _learn(self, clause: _Clause) -> None:
        self._watch(clause, self.present, self.out)

    def _watch(self, clause: _Clause, present: set[Form], out: int) -> bool:
        """Whether something keeps the clause from being broken; it is then watched."""
        absent = next((form for form in clause.needs if form not in present), None)
        if absent is not None:
            self.watched[absent].append(clause)
            return True
        standing = clause.plugins & ~out
        if not standing:
            return False
        number = standing.bit_length() - 1
        self.watched[number].append(clause)
        self.watching |= 1 << number
        return True

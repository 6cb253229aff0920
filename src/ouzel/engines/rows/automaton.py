"""The automaton of a row pattern. For each position it lists, in order of preference, what may come next.

A position is one occurrence of a variable after counts are written out, so A{2} has two. ACCEPT in a list means that
the match may end. An iteration beyond the least count that takes no row is the last one (Perl's rule). The lists are
computed once, so kernels need not know alternatives, groups, counts or anchors.
"""

from __future__ import annotations

import itertools
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.rows.tables import ACCEPT, Tables
from ouzel.errors import QueryError
from ouzel.lang import row_syntax
from ouzel.lang.row_syntax import Pattern

POSITIONS_MAX = 4_096
_INSTRUCTIONS_MAX = 50_000
_BYTE = 8
_WORD = 64


class _Step(IntEnum):
    TAKE = 0  # a row, at a position
    SPLIT = 1  # first one way, then the other
    JUMP = 2
    ANCHOR = 3
    ENTER = 4  # an iteration that has taken no row yet
    LEAVE = 5  # its end: the last one if it took no row
    DONE = 6


class Automaton(NamedTuple):
    variable: NDArray[np.int64]  # of each position
    excluded: NDArray[np.bool_]
    follow: tuple[tuple[int, ...], ...]  # of each position, then at the first row of a partition, then elsewhere
    ends: NDArray[np.bool_]  # the match may end behind a position where no row is left

    @property
    def positions(self) -> int:
        return len(self.variable)

    @property
    def longest(self) -> int | None:
        """The number of rows of the longest match; None if there is no bound."""
        depth: dict[int, int] = {}
        below: list[int] = []

        def reach(position: int) -> int | None:
            found = 0
            stack = [(position, iter(self.follow[position]))]
            active = {position}
            while stack:
                at, rest = stack[-1]
                following = next(rest, None)
                if following is None:
                    stack.pop()
                    active.discard(at)
                    depth[at] = 1 + max((depth[q] for q in self.follow[at] if q >= 0), default=0)
                    found = max(found, depth[at])
                elif following >= 0 and following in active:
                    return None
                elif following >= 0 and following not in depth:
                    active.add(following)
                    stack.append((following, iter(self.follow[following])))
            return depth[position]

        for position in {q for start in self.follow[self.positions :] for q in start if q >= 0}:
            if position not in depth:
                reached = reach(position)
                if reached is None:
                    return None
            below.append(depth[position])
        return max(below, default=0)


class _Program:
    """The pattern as a list of instructions, in order of preference."""

    def __init__(self, variables: dict[str, int], text: str) -> None:
        self.code: list[list[int]] = []
        self.variable: list[int] = []
        self.excluded: list[bool] = []
        self._variables = variables
        self._text = text
        self._loops = itertools.count()

    def _emit(self, step: _Step, *operands: int) -> int:
        if len(self.code) >= _INSTRUCTIONS_MAX:
            raise self._too_large(Pattern())
        self.code.append([step, *operands])
        return len(self.code) - 1

    def _too_large(self, pattern: Pattern) -> QueryError:
        span = pattern.span if pattern.span.end else None
        return QueryError(
            f"the pattern has more than {POSITIONS_MAX:,} positions after its counts and permutations are written out",
            text=self._text,
            start=span.start if span else None,
            end=span.end if span else None,
            hint="make the counts smaller; {n,} has n positions for any number of rows",
        )

    def add(self, pattern: Pattern, excluded: bool = False) -> None:
        match pattern:
            case row_syntax.Variable(name=name):
                if len(self.variable) >= POSITIONS_MAX:
                    raise self._too_large(pattern)
                self._emit(_Step.TAKE, len(self.variable))
                self.variable.append(self._variables[name.lower()])
                self.excluded.append(excluded)
            case row_syntax.Anchor(at_end=at_end):
                self._emit(_Step.ANCHOR, int(at_end))
            case row_syntax.Excluded(item=item):
                self.add(item, True)
            case row_syntax.Sequence(items=items):
                for item in items:
                    self.add(item, excluded)
            case row_syntax.Alternation(items=items):
                self._alternatives([(item,) for item in items], pattern, excluded)
            case row_syntax.Permutation(items=items):
                ways = list(itertools.islice(itertools.permutations(items), POSITIONS_MAX + 1))
                self._alternatives(ways, pattern, excluded)
            case row_syntax.Repeated():
                self._repeated(pattern, excluded)

    def _alternatives(self, ways: list[tuple[Pattern, ...]], pattern: Pattern, excluded: bool) -> None:
        if len(ways) > POSITIONS_MAX:
            raise self._too_large(pattern)
        jumps = []
        for number, way in enumerate(ways):
            is_last = number == len(ways) - 1
            split = None if is_last else self._emit(_Step.SPLIT, len(self.code) + 1, 0)
            for item in way:
                self.add(item, excluded)
            if split is not None:
                jumps.append(self._emit(_Step.JUMP, 0))
                self.code[split][2] = len(self.code)
        for jump in jumps:
            self.code[jump][1] = len(self.code)

    def _repeated(self, pattern: row_syntax.Repeated, excluded: bool) -> None:
        item, least, most, greedy = pattern.item, pattern.least, pattern.most, pattern.greedy
        if most is None and least >= 1 and not _may_be_empty(item):
            # The last of the written ones goes round.
            for _ in range(least):
                again = len(self.code)
                self.add(item, excluded)
            after = len(self.code) + 1
            self._emit(_Step.SPLIT, *((again, after) if greedy else (after, again)))
            return
        for _ in range(least):
            before = len(self.code)
            self.add(item, excluded)
            if len(self.code) == before:
                break  # It takes nothing, however often.
        if most is None:
            pending = [self._iteration(item, excluded)]
            self._emit(_Step.JUMP, pending[0][0])
        else:
            pending = [self._iteration(item, excluded) for _ in range(least, most)]
        after = len(self.code)
        for split, enter, leave in pending:
            self.code[leave][2] = after
            self.code[split][1:] = (enter, after) if greedy else (after, enter)

    def _iteration(self, item: Pattern, excluded: bool) -> tuple[int, int, int]:
        loop = next(self._loops)
        split = self._emit(_Step.SPLIT, 0, 0)
        enter = self._emit(_Step.ENTER, loop)
        self.add(item, excluded)
        return split, enter, self._emit(_Step.LEAVE, loop, 0)

    def following(self, start: int, at_start: bool, at_end: bool) -> tuple[int, ...]:
        """The positions that may come after an instruction, in order of preference. The list ends with ACCEPT, if it is
        there, because nothing after it is ever used.
        """
        found: dict[int, None] = {}
        seen: set[tuple[int, frozenset[int]]] = set()
        stack: list[tuple[int, frozenset[int]]] = [(start, frozenset())]
        while stack:
            place, entered = stack.pop()
            while (place, entered) not in seen:
                seen.add((place, entered))
                step, *operands = self.code[place]
                if step == _Step.TAKE:
                    found.setdefault(operands[0])
                    break
                if step == _Step.DONE:
                    found.setdefault(ACCEPT)
                    return tuple(found)
                if step == _Step.ANCHOR and not (at_end if operands[0] else at_start):
                    break
                if step == _Step.SPLIT:
                    stack.append((operands[1], entered))
                    place = operands[0]
                elif step == _Step.JUMP:
                    place = operands[0]
                elif step == _Step.LEAVE and operands[0] in entered:
                    entered = entered - {operands[0]}
                    place = operands[1]
                else:
                    if step == _Step.ENTER:
                        entered = entered | {operands[0]}
                    place += 1
        return tuple(found)


def _may_be_empty(pattern: Pattern) -> bool:
    match pattern:
        case row_syntax.Variable():
            return False
        case row_syntax.Excluded(item=item):
            return _may_be_empty(item)
        case row_syntax.Repeated(item=item, least=least):
            return least == 0 or _may_be_empty(item)
        case row_syntax.Alternation(items=items):
            return any(_may_be_empty(item) for item in items)
        case row_syntax.Sequence(items=items) | row_syntax.Permutation(items=items):
            return all(_may_be_empty(item) for item in items)
    return True


def build_automaton(pattern: Pattern, variables: tuple[str, ...], text: str = "") -> Automaton:
    """The automaton of a pattern.

    >>> from ouzel.lang.parser import parse_row_pattern
    >>> found = build_automaton(parse_row_pattern("PATTERN (A B*)").pattern, ("A", "B"))
    >>> found.follow[0], found.longest
    ((1, -1), None)
    """
    program = _Program({name.lower(): number for number, name in enumerate(variables)}, text)
    program.add(pattern)
    program.code.append([_Step.DONE])
    after = [place + 1 for place, (step, *_) in enumerate(program.code) if step == _Step.TAKE]
    lists = [program.following(place, False, False) for place in after]
    lists += [program.following(0, True, False), program.following(0, False, False)]
    return Automaton(
        np.array(program.variable, np.int64),
        np.array(program.excluded, bool),
        tuple(lists),
        np.array([ACCEPT in program.following(place, False, True) for place in after], bool),
    )


def build_tables(automaton: Automaton, variables: int) -> Tables:
    """The arrays that the kernels read."""
    positions = automaton.positions
    words = max(-(-positions // _WORD), 1)
    of_variable = np.zeros((max(variables, 1), words), np.uint64)
    preceding = np.zeros((max(positions, 1), words), np.uint64)
    accepting, ending, continuing = np.zeros((3, words), np.uint64)
    for position in range(positions):
        word, bit = divmod(position, _WORD)
        flag = np.uint64(1 << bit)
        of_variable[automaton.variable[position], word] |= flag
        for following in automaton.follow[position]:
            if following == ACCEPT:
                accepting[word] |= flag
            else:
                preceding[following, word] |= flag
        if automaton.ends[position]:
            ending[word] |= flag
        if automaton.follow[position]:
            continuing[word] |= flag
    follow_at = np.cumsum([0, *(len(entries) for entries in automaton.follow)])
    flat = [entry for entries in automaton.follow for entry in entries]
    return Tables(
        _by_byte(of_variable),
        _by_byte(preceding),
        accepting,
        ending,
        continuing,
        follow_at.astype(np.int32),
        np.array(flat, np.int32),
        automaton.variable.astype(np.int32),
    )


def _by_byte(sets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A table [byte, value] of unions of `sets`. The entry is the union of the sets whose bit is set if this byte of a
    word has this value.
    """
    count, words = sets.shape
    unions = np.zeros((-(-count // _BYTE), 1 << _BYTE, words), np.uint64)
    for byte in range(unions.shape[0]):
        for value in range(1, 1 << _BYTE):
            lowest = byte * _BYTE + (value & -value).bit_length() - 1
            unions[byte, value] = unions[byte, value & (value - 1)]
            if lowest < count:
                unions[byte, value] |= sets[lowest]
    return unions

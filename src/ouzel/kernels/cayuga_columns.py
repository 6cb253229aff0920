"""What queries say, as columns for the building of merged automata: one row a query.

A *pattern* of nodes and edges is the same for all queries of a template; only constants differ, and they are columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)


class RangeAtom(NamedTuple):
    """`low <= lane <= high` of the event that is read, or not so; by query. Absent where `present` is False."""

    lane: int
    negated: bool
    low: Ints
    high: Ints
    equality: bool = False
    present: NDArray[np.bool_] | None = None


class AtomTable(NamedTuple):
    """The atoms of a conjunct side by side, equalities first, since they fail most often."""

    lane: Ints  # [atom]
    negated: NDArray[np.bool_]
    low_at: Ints  # [atom]: the row of `columns` that has the constants; the same as `high_at` where they are equal
    high_at: Ints
    columns: Ints  # [column, query]
    present: NDArray[np.bool_]  # [query, atom]
    counts: NDArray[np.int32]  # [query]: how many are present
    keys: Ints  # [query, 4]: lane and value of the first two equalities; lane -1 where there is none


@dataclass(frozen=True)
class ConjunctColumns:
    """One conjunct of a predicate, for every query of a template."""

    atoms: tuple[RangeAtom, ...] = ()
    programs: tuple[int, ...] = ()
    least: Ints | None = None  # bounds of DUR
    greatest: Ints | None = None
    enabled: NDArray[np.bool_] | None = None

    @cached_property
    def table(self) -> AtomTable:
        """All atoms, so that one pass over the queries reads them."""
        atoms = sorted(self.atoms, key=lambda one: (not one.equality or one.negated, one.lane))
        columns: list[Ints] = []
        place: dict[int, int] = {}
        for atom in atoms:
            for column in (atom.low, atom.high):
                if id(column) not in place:
                    place[id(column)] = len(columns)
                    columns.append(column)
        count = len(atoms[0].low) if atoms else 0
        present = np.ones((count, len(atoms)), bool)
        for k, atom in enumerate(atoms):
            if atom.present is not None:
                present[:, k] = atom.present
        lane = np.array([atom.lane for atom in atoms], np.int64)
        equal = sum(atom.equality and not atom.negated for atom in atoms)
        low_at = np.array([place[id(atom.low)] for atom in atoms], np.int64)
        table = AtomTable(
            lane=lane,
            negated=np.array([atom.negated for atom in atoms], bool),
            low_at=low_at,
            high_at=np.array([place[id(atom.high)] for atom in atoms], np.int64),
            columns=np.stack(columns) if columns else np.empty((0, 0), np.int64),
            present=present,
            counts=np.empty(count, np.int32),
            keys=np.empty((count, 4), np.int64),
        )
        _count(table.counts, table.keys, equal, lane, low_at, table.columns, present)
        return table


@njit(cache=True)
def _count(counts, keys, equal, lane, low_at, columns, present):
    """How many atoms each query has, and its first two equalities, which come first."""
    for query in range(len(counts)):
        found = 0
        keys[query, 0] = keys[query, 2] = -1
        keys[query, 1] = keys[query, 3] = 0
        counts[query] = 0
        for atom in range(len(lane)):
            if present[query, atom]:
                counts[query] += 1
                if atom < equal and found < 2:
                    keys[query, 2 * found] = lane[atom]
                    keys[query, 2 * found + 1] = columns[low_at[atom], query]
                    found += 1


class Key(NamedTuple):
    """A filter predicate asks that a lane of the event equals a value of the instance."""

    lane: int
    component: int
    value_lane: int


class EdgeColumns(NamedTuple):
    """An edge from one place of a pattern to another; a conjunct of it must hold."""

    source: int
    target: int
    conjuncts: tuple[ConjunctColumns, ...]
    registers: tuple[tuple[int, int, bool], ...] = ()  # register, program, whether it is a float


class NodeColumns(NamedTuple):
    """A place of a pattern where instances wait; the filter predicate is that of its `next` or `fold`."""

    conjuncts: tuple[ConjunctColumns, ...] = ()
    slot: int = 0
    key: Key | None = None


@dataclass(frozen=True)
class PatternColumns:
    """The automata of all queries of one template: place 0 is the start, the last place is final."""

    count: int
    nodes: tuple[NodeColumns, ...]
    edges: tuple[EdgeColumns, ...]
    parameter_ints: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    parameter_floats: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0), np.float64))
    parameter_nulls: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))


@njit(cache=True)
def mix(folded, value):
    """A hash of what was folded so far and one more value."""
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> np.uint64(32)
    word *= _SECOND_FACTOR
    return word ^ (word >> np.uint64(29))


def apart(numbers: NDArray[np.integer]) -> Words:
    """Small numbers as words far from each other, to begin a hash with: a lane and a value must not just be xor-ed."""
    with np.errstate(over="ignore"):
        return (numbers.astype(np.int64).view(np.uint64) + np.uint64(1)) * _SECOND_FACTOR


def mixed(folded: Words, value: NDArray[np.generic]) -> Words:
    """A hash of what was folded so far and one more column."""
    with np.errstate(over="ignore"):
        words = (folded ^ value.astype(np.int64, copy=False).view(np.uint64)) * _FIRST_FACTOR
        words ^= words >> np.uint64(32)
        words *= _SECOND_FACTOR
        words ^= words >> np.uint64(29)
    return words

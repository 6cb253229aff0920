"""The predicates of queries as columns, for building merged automata: one row per query.

All queries of a template share one *pattern* of nodes and edges. They differ only in constants, which are columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import INT64_MAX, Cube, ReadOnly, frozen
from ouzel.kernels.jit import helper, kernel

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_INFINITY = 0x7FF0000000000000
# The number of rows of atoms that stay in the cache while one atom after the other is added to them.
_ROWS_AT_ONCE = 4096


class RangeAtom(NamedTuple):
    """For each query, the test `low <= lane <= high` on the event that is read, or its negation. A query does not make
    the test if its `present` is False.
    """

    lane: int
    negated: bool
    low: Ints
    high: Ints
    equality: bool = False
    present: NDArray[np.bool_] | None = None


class AtomTable(NamedTuple):
    """The atoms of a conjunct, with those of each query adjacent and equalities first."""

    atoms: Ints  # [query, atom, 3]: twice the lane, plus one if negated; low; high
    counts: NDArray[np.int32]  # [query]
    equal: NDArray[np.int32]  # [query]: the number of equalities among them


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
        """All atoms, with those of one query adjacent."""
        atoms = sorted(self.atoms, key=lambda one: (not one.equality or one.negated, one.lane))
        count = len(atoms[0].low) if atoms else 0
        everyone = np.broadcast_to(np.ones(1, bool), count)
        present = [everyone if atom.present is None else atom.present for atom in atoms]
        most = np.zeros(count, np.int16)
        for mine in present:
            most += mine
        width = max(1, int(most.max())) if count else 0
        table = AtomTable(np.empty((count, width, 3), np.int64), np.zeros(count, np.int32), np.zeros(count, np.int32))
        for begin in range(0, count, _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            part = AtomTable(table.atoms[rows], table.counts[rows], table.equal[rows])
            before = -1
            for atom, mine in zip(atoms, present, strict=True):
                is_equality = atom.equality and not atom.negated
                code = 2 * atom.lane + atom.negated
                low, high = frozen(atom.low[rows]), frozen(atom.high[rows])
                _append_atom(*part, code, code == before, is_equality, low, high, frozen(mine[rows]))
                before = code
        return table


@kernel(allocates=True)
def _append_atom(
    atoms: Cube[np.int64],
    counts: NDArray[np.int32],
    equal: NDArray[np.int32],
    code: int,
    may_be_known: bool,
    is_equality: bool,
    low: ReadOnly[Ints],
    high: ReadOnly[Ints],
    present: ReadOnly[NDArray[np.bool_]],
):
    width = atoms.shape[1]
    for query in range(len(counts)):
        place = counts[query]
        is_known = False
        if may_be_known:
            before = max(place - 1, 0)
            # The same test again, for example in theta and in a selection after it, adds nothing.
            is_known = (
                (place > 0)
                & (atoms[query, before, 0] == code)
                & (atoms[query, before, 1] == low[query])
                & (atoms[query, before, 2] == high[query])
            )
        # Always written, and counted only if present: which queries make a test is unpredictable.
        if place < width:
            atoms[query, place, 0] = code
            atoms[query, place, 1] = low[query]
            atoms[query, place, 2] = high[query]
        counts[query] = place + (present[query] & ~is_known)
        if is_equality:
            equal[query] = counts[query]


@kernel(allocates=True)
def _put_in_order(bits: ReadOnly[Ints], numbers: Ints):
    for k in range(len(bits)):
        number = bits[k]
        if number & INT64_MAX > _INFINITY:
            number = INT64_MAX - 1
        elif number & INT64_MAX == 0:
            number = 0
        else:
            number ^= (number >> 63) & INT64_MAX
        numbers[k] = number


def ordered(values: NDArray[np.float64]) -> Ints:
    """Floats as integers in the same order. NaN is the greatest, and both zeros are equal.

    >>> ordered(np.array([-1.0, -0.0, 0.0, 2.5, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3, 4, 5]
    """
    numbers = np.empty(len(values), np.int64)
    _put_in_order(frozen(values.astype(np.float64, copy=False).view(np.int64)), numbers)
    return numbers


class Key(NamedTuple):
    """A condition that every event satisfies if it takes an instance: a lane of the event equals a value of the
    instance.
    """

    lane: int
    component: int
    value_lane: int


class EdgeColumns(NamedTuple):
    """An edge between two places of a pattern. An event takes it if one of its conjuncts holds."""

    source: int
    target: int
    conjuncts: tuple[ConjunctColumns, ...]
    registers: tuple[tuple[int, int, bool], ...] = ()  # register, program, whether it is a float


class NodeColumns(NamedTuple):
    """A place of a pattern where instances wait, with the filter predicate of its `next` or `fold`."""

    conjuncts: tuple[ConjunctColumns, ...] = ()
    slot: int = 0
    key: Key | None = None
    # Every event that satisfies the filter predicate takes the instances, not only the first one.
    stays: bool = False


@dataclass(frozen=True)
class PatternColumns:
    """The automata of all queries of one template: place 0 is the start, the last place is final."""

    count: int
    nodes: tuple[NodeColumns, ...]
    edges: tuple[EdgeColumns, ...]
    parameter_ints: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    parameter_floats: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0), np.float64))
    parameter_nulls: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0), np.uint8))


@helper(allocates=True)
def mix(folded, value):
    """A hash of an earlier hash and one more value."""
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> np.uint64(32)
    word *= _SECOND_FACTOR
    return word ^ (word >> np.uint64(29))


def apart(numbers: NDArray[np.integer]) -> Words:
    """Words that differ in many bits, made from small numbers. A hash begins with one, because xor of a small lane
    number and a value would collide.
    """
    with np.errstate(over="ignore"):
        return (numbers.astype(np.int64).view(np.uint64) + np.uint64(1)) * _SECOND_FACTOR


def mixed(folded: Words, value: NDArray[np.generic]) -> Words:
    """A hash of an earlier hash and one more column."""
    with np.errstate(over="ignore"):
        words = (folded ^ value.astype(np.int64, copy=False).view(np.uint64)) * _FIRST_FACTOR
        words ^= words >> np.uint64(32)
        words *= _SECOND_FACTOR
        words ^= words >> np.uint64(29)
    return words


def order_of(words: Words) -> Ints:
    """The order that sorts hashes. It sorts words that hold an index in their low bits, which is much faster than
    argsort.

    >>> order_of(np.array([7, 1, 4], np.uint64) << np.uint64(32)).tolist()
    [1, 2, 0]
    """
    places = np.uint64((1 << len(words).bit_length()) - 1)
    order = (np.sort(words & ~places | np.arange(len(words), dtype=np.uint64)) & places).view(np.int64)
    ordered_words = words[order]
    # Two that differ only in their last bits may be in the wrong order.
    return np.argsort(words) if (ordered_words[1:] < ordered_words[:-1]).any() else order

"""Building merged automata out of columns: one row a query, so that 400,000 queries are a few array operations.

A *pattern* of nodes and edges is the same for all queries of a template; only constants differ, and they are columns.
Two nodes are merged if everything that leads to them is equal (CESAR, Definition 2): all of it is written out in words,
and the words are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.cayuga_assembly import MergedEdges, Owners, assembled
from ouzel.kernels.cayuga_columns import ConjunctColumns, Ints, PatternColumns, Words, mix, order_of
from ouzel.kernels.cayuga_indexes import find_words
from ouzel.kernels.cayuga_tables import INT64_MAX, INT64_MIN, Automata, ProgramTable
from ouzel.kernels.jit import helper, kernel

_SEED = np.uint64(0x243F6A8885A308D3)
# So many rules are written out at once.
_ROWS_AT_ONCE = 1 << 15
# The bits of a rule's hash that are used. With fewer bits, building is slower and gives the same automata.
HASH_BITS = 2**64 - 1


class Built(NamedTuple):
    automata: Automata
    # For each pattern: the node of every place and query.
    node_of: list[NDArray[np.int32]]


def build(patterns: Sequence[PatternColumns], programs: ProgramTable, *, merge: bool = True) -> Built:
    """Merge the automata of all queries of all patterns."""
    node_of, owners = _nodes(patterns, merge)
    count = 1 + owners.total
    edges = _edges(patterns, node_of, owners)
    return Built(assembled(patterns, programs, owners, edges, count), node_of)


# ── Rules in words ─────────────────────────────────────────────────────────────────────────────────


@kernel(allocates=True)
def _append(words, last, values):
    """Append a column to every row; a column of one value is the same for all."""
    step = 0 if len(values) == 1 else 1
    for row in range(len(last)):
        words[last[row]] = values[row * step]
        last[row] += 1


@helper(allocates=True)
def _append_parameters(words, at, row, ints, floats, nulls):
    for k in range(ints.shape[1]):
        words[at] = ints[row, k]
        words[at + 1] = floats[row, k]
        words[at + 2] = nulls[row, k]
        at += 3
    return at


@kernel(allocates=True)
def _append_conjunct(
    words, last, begin, enabled, atoms, counts, programs, ints, floats, nulls, least, greatest
):  # fmt: skip
    """Append a conjunct of a predicate: its atoms in one order, its programs with what they read, its bounds of DUR.

    Every list is preceded by its length, so that no two conjuncts have the same words.
    """
    for k in range(len(last)):
        row = begin + k
        at = last[k]
        if len(enabled) and not enabled[row]:
            words[at] = -1
            last[k] = at + 1
            continue
        count = counts[row] if len(counts) else 0
        words[at] = count
        at += 1
        for atom in range(count):
            code, low, high = atoms[row, atom, 0], atoms[row, atom, 1], atoms[row, atom, 2]
            # The order of atoms says nothing.
            place = at + 3 * atom
            while place > at and (code, low, high) < (words[place - 3], words[place - 2], words[place - 1]):
                words[place], words[place + 1], words[place + 2] = words[place - 3], words[place - 2], words[place - 1]
                place -= 3
            words[place], words[place + 1], words[place + 2] = code, low, high
        at += 3 * count
        words[at] = len(programs)
        at += 1
        for program in programs:
            words[at] = program
            at += 1
        if len(programs):
            at = _append_parameters(words, at, row, ints, floats, nulls)
        words[at] = least[row * (len(least) > 1)]
        words[at + 1] = greatest[row * (len(greatest) > 1)]
        last[k] = at + 2


@kernel(allocates=True)
def _append_all_parameters(words, last, begin, ints, floats, nulls):
    for k in range(len(last)):
        last[k] = _append_parameters(words, last[k], begin + k, ints, floats, nulls)


class _Page:
    """Room for the rules of some queries of a pattern: all that they say of one place, in words."""

    def __init__(self, pattern: PatternColumns, begin: int, end: int, width: int) -> None:
        self._begin = begin
        self._pattern = pattern
        floats = np.ascontiguousarray(pattern.parameter_floats).view(np.int64)
        self._parameters = np.ascontiguousarray(pattern.parameter_ints), floats, pattern.parameter_nulls
        self.words = np.empty((end - begin) * width, np.int64)
        self.first = np.arange(end - begin, dtype=np.int64) * width
        self.last = self.first.copy()

    def values(self, values: NDArray[np.integer]) -> None:
        _append(self.words, self.last, np.ascontiguousarray(values, np.int64))

    def one(self, *values: int) -> None:
        for value in values:
            self.values(np.array([value]))

    def conjuncts(self, conjuncts: Sequence[ConjunctColumns]) -> None:
        self.one(len(conjuncts))
        for conjunct in conjuncts:
            table = conjunct.table
            _append_conjunct(
                self.words,
                self.last,
                self._begin,
                np.empty(0, bool) if conjunct.enabled is None else conjunct.enabled,
                table.atoms,
                table.counts,
                np.array(conjunct.programs, np.int64),
                *self._parameters,
                _bounds(conjunct.least, INT64_MIN),
                _bounds(conjunct.greatest, INT64_MAX),
            )

    def registers(self, registers: Sequence[tuple[int, int, bool]]) -> None:
        self.one(len(registers), *(int(part) for register in registers for part in register))
        if registers:
            _append_all_parameters(self.words, self.last, self._begin, *self._parameters)


def _bounds(bounds: Ints | None, none: int) -> Ints:
    return np.array([none], np.int64) if bounds is None else np.ascontiguousarray(bounds)


def _width(conjuncts: Sequence[ConjunctColumns], pattern: PatternColumns) -> int:
    """How many words conjuncts take at most."""
    parameters = 3 * pattern.parameter_ints.shape[1]
    atoms = sum(one.table.atoms.size // max(1, len(one.table.counts)) for one in conjuncts)
    return int(1 + atoms + sum(4 + len(one.programs) + parameters for one in conjuncts))


# ── Equal rules ────────────────────────────────────────────────────────────────────────────────────


@helper(allocates=True)
def _hash(words, first, last):
    word = _SEED
    for k in range(first, last):
        word = mix(word, words[k])
    return word


@helper(allocates=True)
def _is_same(words, first, last, others, other_first, other_last):
    if last - first != other_last - other_first:
        return False
    k = 0
    while k < last - first and words[first + k] == others[other_first + k]:
        k += 1
    return k == last - first


@kernel(allocates=True)
def _number(words, first, last, known, ends, hashes, table, count, bits, numbers, fresh):
    """Number rules: equal ones have one number. Gives how many are known now; `fresh` has the rows of the new ones."""
    mask = np.uint64(len(table) - 1)
    made = 0
    for row in range(len(first)):
        word = _hash(words, first[row], last[row]) & bits
        place = word & mask
        while table[place] >= 0:
            other = table[place]
            if hashes[other] == word and _is_same(words, first[row], last[row], known, ends[other], ends[other + 1]):
                break
            place = (place + np.uint64(1)) & mask
        if table[place] < 0:
            table[place] = count
            hashes[count] = word
            end = ends[count]
            for k in range(first[row], last[row]):
                known[end] = words[k]
                end += 1
            count += 1
            ends[count] = end
            fresh[made] = row
            made += 1
        numbers[row] = table[place]
    return count


@kernel(allocates=True)
def _put_again(hashes, count, table):
    mask = np.uint64(len(table) - 1)
    for number in range(count):
        place = hashes[number] & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = number


class _Rules:
    """Rules that were met, each with a number of its own. A hash finds them; their words decide."""

    def __init__(self) -> None:
        self.count = 0
        self._words = np.empty(1024, np.int64)
        self._ends = np.zeros(65, np.int64)
        self._hashes = np.empty(64, np.uint64)
        self._table = np.full(256, -1, np.int64)

    def number(self, page: _Page) -> tuple[Ints, Ints]:
        """The numbers of some rules, and the rows of those that were not met before."""
        rows = len(page.first)
        before = self.count
        room = int(self._ends[before]) + int((page.last - page.first).sum())
        self._words = _with_room(self._words, room)
        self._ends = _with_room(self._ends, before + rows + 1)
        self._hashes = _with_room(self._hashes, before + rows)
        if len(self._table) < 2 * (before + rows):
            self._table = np.full(1 << (2 * (before + rows)).bit_length(), -1, np.int64)
            _put_again(self._hashes, before, self._table)
        numbers, fresh = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.count = _number(
            page.words, page.first, page.last, self._words, self._ends, self._hashes, self._table, before,
            np.uint64(HASH_BITS), numbers, fresh,
        )  # fmt: skip
        return numbers, fresh[: self.count - before]


def _with_room(array: NDArray, size: int) -> NDArray:  # type: ignore[type-arg]
    if len(array) >= size:
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


class _Numbers(NamedTuple):
    """Of one place of a pattern: which rule each query has, how it waits, and the rows whose rules are new."""

    rule: Ints
    wait: Ints
    fresh: Ints


def _numbers(pattern: PatternColumns, place: int, node_of: NDArray[np.int32], rules: _Rules, waits: _Rules) -> _Numbers:
    """Number what leads to a place and how it waits. Nodes of earlier places are known."""
    node = pattern.nodes[place]
    edges = [edge for edge in pattern.edges if edge.target == place]
    wait_width = 6 + _width(node.conjuncts, pattern)
    width = 2 + sum(2 + _width(edge.conjuncts, pattern) for edge in edges)
    width += sum(3 * (len(edge.registers) + pattern.parameter_ints.shape[1]) for edge in edges)
    found = []
    for begin in range(0, pattern.count, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, pattern.count)
        page = _Page(pattern, begin, end, wait_width)
        page.one(node.slot, node.stays, place == len(pattern.nodes) - 1)
        page.one(*(node.key or (-1, -1, -1)))
        page.conjuncts(node.conjuncts)
        wait, _ = waits.number(page)
        page = _Page(pattern, begin, end, width)
        page.values(wait)
        page.one(len(edges))
        for edge in edges:
            page.values(np.array([-1]) if edge.source == place else node_of[edge.source, begin:end])
            page.conjuncts(edge.conjuncts)
            page.registers(edge.registers)
        rule, fresh = rules.number(page)
        found.append(_Numbers(rule, wait, fresh + begin))
    return _Numbers(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


# ── Nodes ──────────────────────────────────────────────────────────────────────────────────────────


@kernel(allocates=True)
def _in_order_of_nodes(given, numbers, wait, firsts):
    """Number waits from 1 on, in the order of nodes; gives how many there are with the start's. -1: no wait."""
    count = 1
    for node in range(len(given)):
        wait[node] = -1
        if given[node] >= 0:
            if numbers[given[node]] == 0:
                numbers[given[node]] = count
                firsts[count] = node
                count += 1
            wait[node] = numbers[given[node]]
    return count


def _nodes(patterns: Sequence[PatternColumns], merge: bool) -> tuple[list[NDArray[np.int32]], Owners]:
    """The node of every place and query, and for each node a query that it is built from.

    Nodes are numbered from the start outwards, so that edges lead upwards. Nodes that one event reaches together stand
    together: at first those whose edges have the same key in the FR index, then the children of one node. Memory is
    read in stretches so.
    """
    node_of = [np.zeros((len(pattern.nodes), pattern.count), np.int32) for pattern in patterns]
    waits = _Rules()
    alone = following = 0
    owner, place_of, row_of, wait_of = [], [], [], []
    for place in range(1, max((len(p.nodes) for p in patterns), default=0)):
        rules = _Rules()
        here = [k for k, pattern in enumerate(patterns) if place < len(pattern.nodes) and pattern.count]
        found = {}
        for k in here:
            if merge:
                found[k] = _numbers(patterns[k], place, node_of[k], rules, waits)
            else:
                everyone = np.arange(patterns[k].count)
                found[k] = _Numbers(rules.count + everyone, alone + everyone, everyone)
                rules.count += len(everyone)
                alone += len(everyone)
        if not here:
            continue
        near = [_nearness(patterns[k], place, found[k].fresh, node_of[k]) for k in here]
        order = order_of(np.concatenate(near))
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(following + 1, following + 1 + len(order))
        following += len(order)
        for k in here:
            node_of[k][place] = number[found[k].rule]
        owner.append(np.repeat(np.array(here, np.int32), [len(found[k].fresh) for k in here])[order])
        place_of.append(np.full(len(order), place, np.int32))
        row_of.append(np.concatenate([found[k].fresh for k in here])[order].astype(np.int32))
        given = [
            found[k].wait[found[k].fresh] if place < len(patterns[k].nodes) - 1 else np.full(len(found[k].fresh), -1)
            for k in here
        ]
        wait_of.append(np.concatenate(given)[order])
    wait, firsts = np.empty(following, np.int32), np.zeros(following + 1, np.int32)
    known = np.zeros(max(waits.count, alone), np.int32)
    count = _in_order_of_nodes(_joined(wait_of, np.int64), known, wait, firsts)
    patterns_of, places_of, rows_of = (_joined(arrays, np.int32) for arrays in (owner, place_of, row_of))
    return node_of, Owners(patterns_of, places_of, rows_of, wait, firsts[:count])


def _joined(parts: list[NDArray], dtype: type) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate([*parts, np.empty(0, dtype)])


def _nearness(pattern: PatternColumns, place: int, rows: Ints, node_of: NDArray[np.int32]) -> Words:
    """What is alike for nodes that one event reaches together: the node before, or a key of the FR index."""
    entering = next(edge for edge in pattern.edges if edge.target == place)
    if entering.source:
        near: Words = node_of[entering.source, rows].astype(np.uint64) << np.uint64(32)
        return near
    words = np.zeros(len(rows), np.uint64)
    if entering.conjuncts:
        unread, values = np.zeros(len(rows), np.int64), np.zeros((len(rows), 2), np.int64)
        start = np.zeros(len(rows), np.int32)
        find_words(words, unread, values, start, rows.astype(np.int32), *entering.conjuncts[0].table)
    return words


def _edges(patterns: Sequence[PatternColumns], node_of: list[NDArray[np.int32]], owners: Owners) -> MergedEdges:
    blocks, sources, targets = [], [], []
    # Nodes are numbered place by place.
    places = np.searchsorted(owners.place, np.arange(max((len(p.nodes) for p in patterns), default=0) + 1))
    for number, pattern in enumerate(patterns):
        for place in range(1, len(pattern.nodes)):
            begin, end = places[place], places[place + 1]
            mine = np.arange(begin, end)
            if len(patterns) > 1:
                mine = mine[owners.pattern[begin:end] == number]
            if not mine.size:
                continue
            rows = owners.row[mine]
            for index, edge in enumerate(pattern.edges):
                if edge.target == place:
                    blocks.append((number, index, rows))
                    sources.append(node_of[number][edge.source, rows])
                    targets.append((mine + 1).astype(np.int32))
    empty = [np.empty(0, np.int32)]
    return MergedEdges(np.concatenate(sources or empty), np.concatenate(targets or empty), blocks)

"""Building merged automata out of columns: one row a query, so that 400,000 queries are a few array operations.

A *pattern* of nodes and edges is the same for all queries of a template; only constants differ, and they are columns.
Two nodes are merged if everything that leads to them is equal (CESAR, Definition 2), which a hash of 128 bits decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ouzel.kernels.cayuga_assembly import MergedEdges, Owners, assembled
from ouzel.kernels.cayuga_columns import ConjunctColumns, Ints, PatternColumns, Words, mix, order_of
from ouzel.kernels.cayuga_indexes import find_words
from ouzel.kernels.cayuga_tables import Automata, ProgramTable

_SEEDS = (np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344))


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


# ── Merging ────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True)
def _fold_atoms(words, atoms, counts):
    """Add the hashes of a conjunct's atoms: a sum, since the order of atoms says nothing."""
    for row in range(words.shape[1]):
        for atom in range(counts[row]):
            for k in range(2):
                word = mix(mix(_SEEDS[k], atoms[row, atom, 0]), atoms[row, atom, 1])
                if atoms[row, atom, 1] != atoms[row, atom, 2]:
                    word = mix(word, atoms[row, atom, 2])
                words[k, row] += word


@njit(cache=True)
def _fold_values(words, values):
    """Fold a column into hashes; a column of one value is the same for all."""
    step = 0 if len(values) == 1 else 1
    for k in range(2):
        for row in range(words.shape[1]):
            words[k, row] = mix(words[k, row], values[row * step])


@njit(cache=True)
def _fold_words(words, others):
    for k in range(2):
        for row in range(words.shape[1]):
            words[k, row] = mix(words[k, row], others[k, row])


def _fold_one(words: Words, value: int) -> None:
    _fold_values(words, np.array([value], np.int64))


def _seeded(count: int) -> Words:
    return np.repeat(np.array(_SEEDS, np.uint64)[:, None], count, axis=1)


def _fold_parameters(words: Words, pattern: PatternColumns) -> None:
    for k in range(pattern.parameter_ints.shape[1]):
        _fold_values(words, np.ascontiguousarray(pattern.parameter_ints[:, k]))
        _fold_values(words, np.ascontiguousarray(pattern.parameter_floats[:, k]).view(np.int64))
        _fold_values(words, pattern.parameter_nulls[:, k].astype(np.int64))


def _conjunct_words(conjunct: ConjunctColumns, pattern: PatternColumns) -> Words:
    words = np.zeros((2, pattern.count), np.uint64)
    if conjunct.atoms:
        table = conjunct.table
        _fold_atoms(words, table.atoms, table.counts)
    for program in conjunct.programs:
        # Zero folded into zero is zero: the first program would count as none.
        _fold_one(words, program + 1)
    if conjunct.programs:
        _fold_parameters(words, pattern)
    for bound in (conjunct.least, conjunct.greatest):
        if bound is None:
            _fold_one(words, 1)
        else:
            _fold_values(words, np.ascontiguousarray(bound))
    if conjunct.enabled is not None:
        words[:, ~conjunct.enabled] = 0
    return words


def _predicate_words(conjuncts: Sequence[ConjunctColumns], pattern: PatternColumns) -> Words:
    words = _seeded(pattern.count)
    for conjunct in conjuncts:
        _fold_words(words, _conjunct_words(conjunct, pattern))
    return words


def _place_words(pattern: PatternColumns, found: Words, waits: Words) -> None:
    """For every place but the start: what leads to it and how it waits, and how it waits alone, by query."""
    by_place = [_seeded(pattern.count)]
    for place in range(1, len(pattern.nodes)):
        node = pattern.nodes[place]
        words = _predicate_words(node.conjuncts, pattern)
        _fold_one(words, 4 * node.slot + 2 * node.stays + (place == len(pattern.nodes) - 1))
        for part in node.key or (-1,):
            _fold_one(words, part)
        mine = slice((place - 1) * pattern.count, place * pattern.count)
        waits[:, mine] = words
        for edge in pattern.edges:
            if edge.target == place:
                label = _predicate_words(edge.conjuncts, pattern)
                for register in edge.registers:
                    for part in register:
                        _fold_one(label, int(part))
                if edge.registers:
                    _fold_parameters(label, pattern)
                _fold_words(words, label)
                if edge.source == place:
                    _fold_one(words, 7)
                else:
                    _fold_words(words, by_place[edge.source])
        by_place.append(words)
        found[:, mine] = words


@njit(cache=True)
def _number_waits(words, chosen, final, table, numbers, wait, firsts):
    """Number waits from 1 on, in the order of nodes, by their hashes; gives how many there are with the start's."""
    mask = np.uint64(len(table) - 1)
    count = 1
    for node in range(len(final)):
        if final[node]:
            wait[node] = -1
            continue
        word = words[0, chosen[node]] | np.uint64(1)
        place = word & mask
        while table[place] != 0 and table[place] != word:
            place = (place + np.uint64(1)) & mask
        if table[place] == 0:
            table[place] = word
            numbers[place] = count
            firsts[count] = node
            count += 1
        elif words[1, chosen[firsts[numbers[place]]]] != words[1, chosen[node]]:
            return -1
        wait[node] = numbers[place]
    return count


def _waits(words: Words | None, chosen: Ints, final: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """How each node waits, and for each wait a node that waits so. Without hashes no two wait alike."""
    total = len(final)
    if words is None:
        waiting = np.flatnonzero(~final).astype(np.int32)
        wait = np.full(total, -1, np.int32)
        wait[waiting] = np.arange(1, len(waiting) + 1, dtype=np.int32)
        return wait, np.concatenate([np.zeros(1, np.int32), waiting])
    places = 1 << max(4, 2 * total).bit_length()
    wait, firsts = np.empty(total, np.int32), np.zeros(total + 1, np.int32)
    count = _number_waits(words, chosen, final, np.zeros(places, np.uint64), np.zeros(places, np.int32), wait, firsts)
    assert count > 0, "two different filter predicates have one hash"
    return wait, firsts[:count]


@njit(cache=True)
def _grouped(order, first, second, group, representative):
    """Which of the things with equal hashes each is one of, and the first of them, in the order of these; gives how
    many groups there are."""
    begin = 0
    while begin < len(order):
        least = order[begin]
        end = begin + 1
        while end < len(order) and first[order[end]] == first[order[begin]]:
            if second[order[end]] != second[order[begin]]:
                return -1
            least = min(least, order[end])
            end += 1
        for k in range(begin, end):
            group[order[k]] = least
        begin = end
    groups = 0
    for k in range(len(group)):
        if group[k] == k:
            representative[groups] = k
            group[k] = groups
            groups += 1
        else:
            group[k] = group[group[k]]
    return groups


def _nodes(patterns: Sequence[PatternColumns], merge: bool) -> tuple[list[NDArray[np.int32]], Owners]:
    """The node of every place and query, and for each node a query that it is built from."""
    begins = np.cumsum([0, *((len(p.nodes) - 1) * p.count for p in patterns)])
    total = int(begins[-1])
    group = representative = np.arange(total)
    wait_words = None
    if merge and total:
        words, wait_words = np.empty((2, total), np.uint64), np.empty((2, total), np.uint64)
        for pattern, begin, end in zip(patterns, begins[:-1], begins[1:], strict=True):
            _place_words(pattern, words[:, begin:end], wait_words[:, begin:end])
        group, representative = np.empty(total, np.int64), np.empty(total, np.int64)
        groups = _grouped(order_of(words[0]), words[0], words[1], group, representative)
        assert groups > 0, "two different automata have one hash"
        representative = representative[:groups]
    number, numbered = _numbered(patterns, begins, group, representative)
    node_of = []
    for pattern, begin, end in zip(patterns, begins[:-1], begins[1:], strict=True):
        nodes = np.zeros((len(pattern.nodes), pattern.count), np.int32)
        nodes[1:] = number[group[begin:end]].reshape(len(pattern.nodes) - 1, pattern.count)
        node_of.append(nodes)
    last = np.array([len(p.nodes) - 1 for p in patterns], np.int32)
    final = numbered.place == last[numbered.pattern]
    wait, firsts = _waits(wait_words, numbered.chosen, final)
    return node_of, Owners(numbered.pattern, numbered.place, numbered.row, wait, firsts)


class _Numbered(NamedTuple):
    """What nodes are built from, in their order."""

    chosen: Ints  # a place of a query, among those of all patterns
    pattern: NDArray[np.int32]
    place: NDArray[np.int32]
    row: NDArray[np.int32]


def _numbered(
    patterns: Sequence[PatternColumns], begins: Ints, group: Ints, representative: Ints
) -> tuple[NDArray[np.int32], _Numbered]:
    """Numbers of nodes from the start outwards, so that edges lead upwards, and the nodes in that order.

    Nodes that one event reaches together stand together: at first those whose edges have the same key in the FR index,
    then the children of one node. Memory is read in stretches so.
    """
    number = np.zeros(len(representative), np.int32)
    parts: list[_Numbered] = []
    following = 1
    for place in range(1, max((len(p.nodes) for p in patterns), default=0)):
        mine, near, pattern_of, row_of = [], [], [], []
        for k, pattern in enumerate(patterns):
            if place < len(pattern.nodes):
                begin = begins[k] + (place - 1) * pattern.count
                first, last = np.searchsorted(representative, [begin, begin + pattern.count])
                rows = (representative[first:last] - begin).astype(np.int32)
                mine.append(np.arange(first, last))
                near.append(_nearness(pattern, place, rows, begins[k], group, number))
                pattern_of.append(np.full(len(rows), k, np.int32))
                row_of.append(rows)
        order = order_of(np.concatenate(near))
        at = np.concatenate(mine)[order]
        number[at] = np.arange(following, following + len(at), dtype=np.int32)
        following += len(at)
        chosen = representative[at]
        place_of = np.full(len(at), place, np.int32)
        parts.append(_Numbered(chosen, np.concatenate(pattern_of)[order], place_of, np.concatenate(row_of)[order]))
    if not parts:
        empty = np.empty(0, np.int32)
        return number, _Numbered(np.empty(0, np.int64), empty, empty, empty)
    return number, _Numbered(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _nearness(
    pattern: PatternColumns,
    place: int,
    rows: NDArray[np.int32],
    begin: int,
    group: Ints,
    number: NDArray[np.int32],
) -> Words:
    """What is alike for nodes that one event reaches together: the node before, or a key of the FR index."""
    entering = next(edge for edge in pattern.edges if edge.target == place)
    if entering.source:
        source = begin + (entering.source - 1) * pattern.count
        return number[group[source + rows]].astype(np.uint64) << np.uint64(32)
    words = np.zeros(len(rows), np.uint64)
    if entering.conjuncts:
        unread = np.zeros(len(rows), np.int64)
        find_words(words, unread, np.zeros(len(rows), np.int32), rows, *entering.conjuncts[0].table)
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

"""The FR index over edges and the AN index over waits (Cayuga), built from the columns of queries.

A conjunct is found by up to two equalities, and by the range of one more lane. So for 100,000 queries with `price >
:limit`, an event costs no more than the queries that it satisfies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.automata.columns import ConjunctColumns, Ints, Words, apart, mix, mixed, order_of
from ouzel.engines.automata.tables import BLOCK, Conjunct, Entry, EntryFlag, Index, Slot, aligned
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Cube, Matrix
from ouzel.kernels.jit import helper, kernel

# With fewer edges, testing them one by one is faster than looking up each pair of lanes that they compare.
FR_EDGES_MIN = 24
# With fewer conjuncts of one key, testing them one by one is faster than a search among their ranges.
RANGES_MIN = 32
# The number of bits that stay in the nearest cache.
_BITS_MAX = 1 << 18
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_ALL_BITS = np.uint64(2**64 - 1)
_TOP_BIT = np.uint64(63)
_LOWEST_BITS = np.uint64(63)

FLAG_BITS = 4
_HALF = 32


class ConjunctBlock(NamedTuple):
    """One conjunct of a pattern for some queries (`rows`), and the edge or wait that has it in each (`owners`)."""

    pattern: int
    columns: ConjunctColumns
    rows: NDArray[np.int32]
    owners: NDArray[np.int64]

    def chosen(self, which: NDArray[np.bool_]) -> ConjunctBlock:
        """The block with only some of its rows."""
        return self if which.all() else self._replace(rows=self.rows[which], owners=self.owners[which])


def first_of(owners: NDArray[np.integer], count: int) -> NDArray[np.int32]:
    """Where the items of each owner begin once items are sorted by owner."""
    first = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=first[1:])
    return first


@kernel(allocates=True)
def places_of(owners: NDArray[np.int32] | NDArray[np.int64], first: NDArray[np.int32]):
    """The index of each item after a stable sort by owner."""
    following = first.copy()
    place = np.empty(len(owners), np.int64)
    for k in range(len(owners)):
        place[k] = following[owners[k]]
        following[owners[k]] += 1
    return place


# ── Indexes ────────────────────────────────────────────────────────────────────────────────────────


@kernel(allocates=True)
def find_words(
    words: NDArray[np.uint64],
    signatures: NDArray[np.int64],
    values: Matrix[np.int64],
    source: NDArray[np.int32],
    rows: NDArray[np.int32],
    atoms: Cube[np.int64],
    counts: NDArray[np.int32],
    equal: NDArray[np.int32],
):
    """The keys by which conjuncts of edges are found in the FR index. A key is a node, the lanes compared, and their
    values.
    """
    for k in range(len(words)):
        row = rows[k]
        keys = equal[row] if len(equal) else 0
        signatures[k] = 0
        for atom in range(2):
            values[k, atom] = atoms[row, atom, 1] if atom < keys else 0
        if keys > 0:
            signatures[k] = ((atoms[row, 0, 0] >> 1) + 1) * 65536
        if keys > 1:
            signatures[k] += (atoms[row, 1, 0] >> 1) + 1
        word = mix((np.uint64(source[k]) + np.uint64(1)) * _SECOND_FACTOR, signatures[k])
        if keys > 0:
            word = mix(word, values[k, 0])
        if keys > 1:
            word = mix(word, values[k, 1])
        words[k] = word


@kernel(allocates=True)
def find_ranges(
    chosen: NDArray[np.int32],
    bounds: Matrix[np.int64],
    lanes: NDArray[np.int64],
    rows: NDArray[np.int32],
    atoms: Cube[np.int64],
    counts: NDArray[np.int32],
    equal: NDArray[np.int32],
):
    """The range by which each conjunct can be found: the number of its atom, its two ends, and its lane plus one.

    A range with two ends is preferred, because fewer events satisfy it. Of several, the last one is taken, because
    texts differ more in later bytes. A conjunct without a range has atom -1 and lane 0.
    """
    for k in range(len(rows)):
        row = rows[k]
        chosen[k] = -1
        lanes[k] = 0
        best = 1
        for atom in range(min(equal[row], 2), counts[row]):
            code, low, high = atoms[row, atom, 0], atoms[row, atom, 1], atoms[row, atom, 2]
            ends = int(low > INT64_MIN) + int(high < INT64_MAX)
            if code & 1 == 0 and ends >= best:
                best = ends
                chosen[k] = atom
                lanes[k] = (code >> 1) + 1
                bounds[k, 0], bounds[k, 1] = low, high


class Indexed(NamedTuple):
    """An index, and for each conjunct its entry there."""

    index: Index
    signature_first: NDArray[np.int32]  # by node
    entry_of: Ints  # by conjunct
    ranged: NDArray[np.int32]  # by conjunct: the atom of the range by which it is found; -1: none


class _Keys(NamedTuple):
    """For each conjunct, what the index finds it by: its lanes, values and range."""

    conjunct: Ints
    signature: Ints
    values: Ints  # [conjunct, 2]
    word: Words
    atom: NDArray[np.int32]  # of the range
    bounds: Ints  # [conjunct, 2]
    range_lane: Ints  # plus one; 0: none

    def take(self, which: Ints) -> _Keys:
        return _Keys._make(array[which] for array in self)


_EQUALITY_BITS = 33


def index_of(
    blocks: Sequence[ConjunctBlock],
    conjunct_of: Sequence[Ints],
    nodes_of: Sequence[NDArray[np.int32]],
    is_indexed: NDArray[np.bool_],
    *,
    covers_all: bool = False,
) -> Indexed:
    """The index over conjuncts, by the node of each conjunct.

    Entries with ranges come first, then other entries that the hash table finds, and last the entries of nodes that are
    not indexed, which are scanned. If `covers_all`, `highest` covers all entries, not only those with ranges.
    """
    total = sum(len(block.owners) for block in blocks)
    node = np.empty(total, np.int32)
    parts = [_no_keys()]
    for block, mine, nodes in zip(blocks, conjunct_of, nodes_of, strict=True):
        node[mine] = nodes
        chosen = np.flatnonzero(is_indexed[nodes])
        if len(chosen):
            parts.append(_keys_of(block, chosen, mine[chosen], nodes[chosen]))
    keys = _joined(parts)
    order = order_of(keys.word)
    keys = keys.take(order)
    is_ranged = _sizes(keys.word) >= RANGES_MIN
    is_ranged &= keys.range_lane > 0
    plain, ranged = keys.take(np.flatnonzero(~is_ranged)), keys.take(np.flatnonzero(is_ranged))
    plain = plain.take(_by_key(plain, node))
    ranged = ranged._replace(signature=ranged.signature | ranged.range_lane << _EQUALITY_BITS)
    ranged = ranged.take(_by_key_and_range(ranged, node))
    keys = _joined([ranged, plain])
    found, range_count = keys.conjunct, len(ranged.conjunct)
    scanned = np.flatnonzero(~is_indexed[node])
    entry_of = np.empty(total, np.int64)
    entry_of[found] = np.arange(len(found))
    entry_of[scanned] = np.arange(len(found), total)
    atoms = np.full(total, -1, np.int32)
    atoms[ranged.conjunct] = ranged.atom
    first, signatures, words, which = _signatures(keys, node, scanned, len(is_indexed))
    bits, table = _table(keys, which)
    highs = np.full(len(found) if covers_all else range_count, INT64_MAX)
    highs[:range_count] = ranged.bounds[:, 1]
    highest, levels = _levels(highs)
    lows = np.ascontiguousarray(ranged.bounds[:, 0])
    return Indexed(Index(signatures, words, bits, table, lows, highest, levels), first, entry_of, atoms)


def _no_keys() -> _Keys:
    none, pairs = np.empty(0, np.int64), np.empty((0, 2), np.int64)
    return _Keys(none, none, pairs, np.empty(0, np.uint64), np.empty(0, np.int32), pairs, none)


def _joined(parts: Sequence[_Keys]) -> _Keys:
    return _Keys._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _keys_of(block: ConjunctBlock, chosen: Ints, conjuncts: Ints, nodes: NDArray[np.int32]) -> _Keys:
    """The keys of some conjuncts of a block."""
    count, rows, table = len(chosen), block.rows[chosen], block.columns.table
    signatures, words = np.empty(count, np.int64), np.empty(count, np.uint64)
    values, bounds, lanes = np.empty((count, 2), np.int64), np.zeros((count, 2), np.int64), np.zeros(count, np.int64)
    atoms = np.full(count, -1, np.int32)
    find_words(words, signatures, values, nodes, rows, *table)
    if block.columns.atoms:
        find_ranges(atoms, bounds, lanes, rows, *table)
    return _Keys(conjuncts, signatures, values, words, atoms, bounds, lanes)


def _sizes(words: Words) -> Ints:
    """For each word of a sorted array, the number of equal words."""
    begins = np.flatnonzero(np.concatenate([np.ones(min(1, len(words)), bool), words[1:] != words[:-1]]))
    sizes = np.diff(begins, append=len(words))
    return np.repeat(sizes, sizes)


def _by_key(keys: _Keys, node: NDArray[np.int32]) -> Ints:
    """The order that makes equal keys adjacent. The keys must be sorted by hash."""
    nodes = node[keys.conjunct]
    hit = np.flatnonzero(keys.word[1:] == keys.word[:-1])
    alike = (nodes[hit] == nodes[hit + 1]) & (keys.signature[hit] == keys.signature[hit + 1])
    if (alike & (keys.values[hit] == keys.values[hit + 1]).all(axis=1)).all():
        return np.arange(len(nodes))
    return np.lexsort((keys.values[:, 1], keys.values[:, 0], keys.signature, nodes, keys.word))


def _by_key_and_range(keys: _Keys, node: NDArray[np.int32]) -> Ints:
    """The order that makes equal keys adjacent and sorts them by the low end of their range. With equal low ends the
    longest range comes first.
    """
    low, high = keys.bounds[:, 0], keys.bounds[:, 1]
    return np.lexsort(
        (~high, low, keys.values[:, 1], keys.values[:, 0], keys.signature, node[keys.conjunct], keys.word)
    )


def _signatures(
    keys: _Keys, node: NDArray[np.int32], scanned: Ints, node_count: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], Words, Ints]:
    """(the first signature of each node, signatures, their hashes, the signature of each key)."""
    scanned_node = node[scanned]
    begins = np.flatnonzero(np.diff(scanned_node, prepend=-1))
    ends = np.append(begins[1:], len(scanned))[: len(begins)] + len(keys.conjunct)
    ones = np.ones(len(begins), np.int64)
    rows = [np.stack([begins + len(keys.conjunct), ends, -ones, ones], axis=1)]
    owners, numbers = [scanned_node[begins].astype(np.int64)], [-ones]
    distinct = np.sort(keys.signature)
    distinct = distinct[np.flatnonzero(np.diff(distinct, prepend=-1))]
    shift = max(1, len(distinct)).bit_length()
    pairs = node[keys.conjunct].astype(np.int64) << shift | np.searchsorted(distinct, keys.signature)
    known = np.sort(pairs)
    known = known[np.flatnonzero(np.diff(known, prepend=-1))]
    number = distinct[known & ((1 << shift) - 1)]
    lanes = [(number >> 16 & 65535) - 1, (number & 65535) - 1, (number >> _EQUALITY_BITS) - 1, np.zeros_like(number)]
    rows.append(np.stack(lanes, axis=1))
    owners.append(known >> shift)
    numbers.append(number)
    owner = np.concatenate(owners)
    by_node = np.argsort(owner, kind="stable")
    place_of = np.empty(len(owner), np.int64)
    place_of[by_node] = np.arange(len(owner))
    which = place_of[len(begins) + np.searchsorted(known, pairs)]
    signatures = np.ascontiguousarray(np.concatenate(rows)[by_node].astype(np.int32))
    words = mixed(apart(owner[by_node]), np.concatenate(numbers)[by_node] & ((1 << _EQUALITY_BITS) - 1))
    return first_of(owner, node_count), signatures, words, which


def _table(keys: _Keys, which: Ints) -> tuple[Words, Ints]:
    """(bits, hash table) of an index."""
    words = keys.word
    is_first = np.ones(len(words), bool)
    is_first[1:] = (words[1:] != words[:-1]) | (which[1:] != which[:-1])
    is_first[1:] |= (keys.values[1:] != keys.values[:-1]).any(axis=1)
    begins = np.flatnonzero(is_first)
    table = aligned(1 << int(2 * len(begins)).bit_length(), len(Slot))
    table[:] = 0
    bits = np.zeros(min(_BITS_MAX, 1 << int(16 * len(begins) + 63).bit_length()) // 64, np.uint64)
    _insert(words, which, keys.values, begins, table, bits)
    return bits, table


@kernel(allocates=True)
def _insert(
    words: NDArray[np.uint64],
    which: NDArray[np.int64],
    values: Matrix[np.int64],
    begins: NDArray[np.int64],
    table: Matrix[np.int64],
    bits: NDArray[np.uint64],
):
    mask = np.uint64(len(table) - 1)
    bit_mask = np.uint64(64 * len(bits) - 1)
    for k in range(len(begins)):
        begin = begins[k]
        end = begins[k + 1] if k + 1 < len(begins) else len(words)
        bit = words[begin] & bit_mask
        bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        place = words[begin] >> np.uint64(32) & mask
        while table[place, Slot.SIGNATURE] != 0:
            place = (place + np.uint64(1)) & mask
        table[place, Slot.SIGNATURE] = which[begin] + 1
        table[place, Slot.VALUE] = values[begin, 0]
        table[place, Slot.OTHER_VALUE] = values[begin, 1]
        table[place, Slot.ENTRIES] = begin << 32 | end


def _levels(highs: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """`Index.highest` and `Index.levels`. Each level is filled up to a whole block."""
    parts, begins = [], [0]
    while True:
        padded = np.full(-(-len(highs) // BLOCK) * BLOCK, INT64_MIN)
        padded[: len(highs)] = highs
        parts.append(padded)
        if len(padded) <= BLOCK:
            return np.concatenate(parts), np.array(begins, np.int32)
        begins.append(begins[-1] + len(padded))
        highs = padded.reshape(-1, BLOCK).max(axis=1)


# ── FR ─────────────────────────────────────────────────────────────────────────────────────────────


class WaitKeys(NamedTuple):
    """By wait: a lane, and the value that this lane has in every event that takes an instance of the wait. Lane -1 if
    there is none.
    """

    lane: NDArray[np.int32]
    value: Ints


@helper(allocates=True)
def _is_known(atoms, row, atom, keys, ranged, lane, value):
    """Whether an atom need not be tested any more: the index has looked it up, or the wait requires the same."""
    if keys >= 0:
        return atom < keys or atom == ranged
    code, low, high = atoms[row, atom, 0], atoms[row, atom, 1], atoms[row, atom, 2]
    return code == 2 * lane and low == high and low == value


@kernel(allocates=True)
def write_entries(
    entries: Matrix[np.int64],
    gates: Matrix[np.uint64],
    is_gate_lane: NDArray[np.bool_],
    entry_of: NDArray[np.int64],
    ranged: NDArray[np.int32],
    places: NDArray[np.int64],
    rows: NDArray[np.int32],
    edges: NDArray[np.int64],
    source: NDArray[np.int32],
    is_indexed: NDArray[np.bool_],
    wait: NDArray[np.int32],
    lanes: NDArray[np.int32],
    values: NDArray[np.int64],
    atoms: Cube[np.int64],
    counts: NDArray[np.int32],
    equal: NDArray[np.int32],
    conjuncts: Matrix[np.int64],
    rest: Matrix[np.int64],
    more: int,
    is_plain: bool,
    target: NDArray[np.int32],
    conjunct_first: NDArray[np.int32],
    register_first: NDArray[np.int32],
):
    """Write the entries of the FR index. An entry holds an edge, two tests of the event, and whether there is more to
    test.

    Atoms that do not fit into an entry go to `rest`, from row `more` on. Returns the row after the last one written.

    It also makes the gates of nodes with few edges. A gate has one bit for each edge. The bit is a hash of an equality
    that the edge requires, if possible one that the wait does not require already.
    """
    for k in range(len(rows)):
        row, edge = rows[k], edges[k]
        node = source[edge]
        conjunct = places[k]
        entry = entry_of[conjunct]
        lane, value = lanes[wait[node]], values[wait[node]]
        tests = 0
        is_open = True
        conjuncts[conjunct, Conjunct.ATOM_FIRST] = more
        entries[entry, Entry.EDGE] = edge
        entries[entry, Entry.TARGET] = np.int64(wait[target[edge]]) << _HALF | np.int64(target[edge])
        entries[entry, Entry.LANES] = 0
        if len(counts):
            keys = min(equal[row], 2) if is_indexed[node] else -1
            if keys < 0 and equal[row] > 0:
                which = int(equal[row] > 1 and atoms[row, 0, 0] == 2 * lane)
                gate_lane = atoms[row, which, 0] >> 1
                is_gate_lane[gate_lane] = True
                word = mix((np.uint64(gate_lane) + np.uint64(1)) * _SECOND_FACTOR, atoms[row, which, 1])
                gates[node, word >> _TOP_BIT] |= np.uint64(1) << (word & _LOWEST_BITS)
                is_open = False
            for atom in range(counts[row]):
                if _is_known(atoms, row, atom, keys, ranged[conjunct], lane, value):
                    continue
                code = atoms[row, atom, 0]
                if tests < 2 and code & 1 == 0:
                    entries[entry, Entry.LANES] |= ((code >> 1) + 1) << _HALF * tests
                    entries[entry, Entry.LOW + 2 * tests] = atoms[row, atom, 1]
                    entries[entry, Entry.HIGH + 2 * tests] = atoms[row, atom, 2]
                    tests += 1
                else:
                    rest[more, 0] = code >> 1
                    rest[more, 1] = code & 1
                    rest[more, 2] = atoms[row, atom, 1]
                    rest[more, 3] = atoms[row, atom, 2]
                    more += 1
        if is_open:
            gates[node, 0] = gates[node, 1] = _ALL_BITS
        conjuncts[conjunct, Conjunct.ATOM_LAST] = more
        flags = 0 if is_plain else EntryFlag.PROGRAMS
        if more > conjuncts[conjunct, Conjunct.ATOM_FIRST]:
            flags |= EntryFlag.ATOMS
        if conjunct_first[edge + 1] - conjunct_first[edge] > 1:
            flags |= EntryFlag.SIBLINGS
        if register_first[edge + 1] > register_first[edge]:
            flags |= EntryFlag.REGISTERS
        entries[entry, Entry.CONJUNCT] = conjunct << FLAG_BITS | flags
    return more


# ── AN ─────────────────────────────────────────────────────────────────────────────────────────────


class AnIndex(NamedTuple):
    index: Index
    waits: NDArray[np.int32]  # by entry
    entries: NDArray[np.int32]  # sorted by wait
    first: NDArray[np.int32]  # by wait, in `entries`
    keys: WaitKeys
    # By wait: how many equalities of its predicate and which range the index has looked up, -1 for none, if it has only
    # one conjunct.
    known: Matrix[np.int32]


def an_index(blocks: Sequence[ConjunctBlock], first_wait: int, waits: int, is_dynamic: NDArray[np.bool_]) -> AnIndex:
    """The AN index over conjuncts of filter predicates. It leaves out the waits in `is_dynamic`, whose instances are
    found by a value of their own.
    """
    static = [block.chosen(~is_dynamic[block.owners - first_wait]) for block in blocks]
    of_block = [block.owners - first_wait for block in static]
    wait = np.concatenate([*of_block, np.empty(0, np.int64)])
    first = first_of(wait, waits)
    place = places_of(wait, first)
    ends = np.cumsum([len(mine) for mine in of_block])
    places = [place[end - len(mine) : end] for mine, end in zip(of_block, ends.tolist(), strict=True)]
    # All of them are at one node, because an event looks for all waits at once.
    nodes = [np.zeros(len(mine), np.int32) for mine in of_block]
    found = index_of(static, places, nodes, np.ones(1, bool), covers_all=True)
    wait_of = np.empty(len(wait), np.int32)
    wait_of[found.entry_of[place]] = wait
    keys = WaitKeys(np.full(waits, -1, np.int32), np.zeros(waits, np.int64))
    known = np.zeros((waits, 2), np.int32)
    known[:, 1] = -1
    is_only = np.diff(first) == 1
    for block, mine in zip(static, of_block, strict=True):
        table = block.columns.table
        if len(table.equal):
            only = np.flatnonzero(is_only[mine])
            known[mine[only], 0] = np.minimum(table.equal[block.rows[only]], 2)
            known[mine[only], 1] = found.ranged[first[mine[only]]]
            chosen = np.flatnonzero(is_only[mine] & (table.equal[block.rows] > 0))
            atom = table.atoms[block.rows[chosen], 0]
            keys.lane[mine[chosen]], keys.value[mine[chosen]] = atom[:, 0] >> 1, atom[:, 1]
    return AnIndex(found.index, wait_of, found.entry_of.astype(np.int32), first, keys, known)

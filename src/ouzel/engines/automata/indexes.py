"""The FR index over edges and the AN index over waits, built from the columns of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.automata.columns import ConjunctColumns, Ints, Words, apart, mix, mixed, order_of
from ouzel.engines.automata.tables import Conjunct, Entry, EntryFlag, FrSlot, aligned
from ouzel.kernels.arrays import Cube, Matrix
from ouzel.kernels.jit import helper, kernel

# With fewer edges, testing them one by one is faster than looking up each pair of lanes that they compare.
FR_EDGES_MIN = 24
# The number of bits that stay in the nearest cache.
_BITS_MAX = 1 << 18
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_ALL_BITS = np.uint64(2**64 - 1)
_TOP_BIT = np.uint64(63)
_LOWEST_BITS = np.uint64(63)

FLAG_BITS = 4
_HALF = 32


class ConjunctBlock(NamedTuple):
    """One conjunct of one edge or wait of a pattern, for the rows that are built."""

    pattern: int
    columns: ConjunctColumns
    rows: NDArray[np.int32]
    owners: NDArray[np.int64]


def first_of(owners: NDArray[np.integer], count: int) -> NDArray[np.int32]:
    """Where the items of each owner begin, sorted by owner."""
    first = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=first[1:])
    return first


@kernel(allocates=True)
def places_of(owners: NDArray[np.int32] | NDArray[np.int64], first: NDArray[np.int32]):
    """The new places of items in a stable sort by owner."""
    following = first.copy()
    place = np.empty(len(owners), np.int64)
    for k in range(len(owners)):
        place[k] = following[owners[k]]
        following[owners[k]] += 1
    return place


# ── FR ─────────────────────────────────────────────────────────────────────────────────────────────


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
    """The key of a conjunct of an edge in the FR index: its node, the lanes it compares, and their values."""
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


class WaitKeys(NamedTuple):
    """By wait: a lane and the value that every event that takes its instances has there; lane -1: none."""

    lane: NDArray[np.int32]
    value: Ints


@helper(allocates=True)
def _is_known(atoms, row, atom, keys, lane, value):
    """Whether an event is known to satisfy an atom: the index looked it up, or the wait has the same atom."""
    if keys >= 0:
        return atom < keys
    code, low, high = atoms[row, atom, 0], atoms[row, atom, 1], atoms[row, atom, 2]
    return code == 2 * lane and low == high and low == value


@kernel(allocates=True)
def write_entries(
    entries: Matrix[np.int64],
    gates: Matrix[np.uint64],
    is_gate_lane: NDArray[np.bool_],
    entry_of: NDArray[np.int64],
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
    """Entries of the FR index: an edge, two tests of the event, and whether there is more to test.

    Atoms that do not fit go to `rest` from row `more` on; returns the row after the last one.

    It also makes the gates of nodes with few edges. A gate has one bit per edge, for an equality of that edge; one
    that the wait does not already require is preferred.
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
                if _is_known(atoms, row, atom, keys, lane, value):
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


class FrIndex(NamedTuple):
    signature_first: NDArray[np.int32]
    signatures: NDArray[np.int32]
    signature_words: Words
    entry_of: Ints  # by conjunct of an edge
    first_found: int  # the first entry that is found by a hash
    words: Words  # of the entries from there on
    which: Ints  # the rows of their signatures
    values: Ints  # [entry, 2]: the values that their signatures compare with


def fr_index(
    blocks: Sequence[ConjunctBlock],
    conjunct_of: Sequence[Ints],
    source: NDArray[np.int32],
    is_indexed: NDArray[np.bool_],
) -> FrIndex:
    """The entries of nodes with few edges come one after the other; the others are sorted by hash."""
    total = sum(len(block.owners) for block in blocks)
    # Conjuncts of edges come first, in the order of their edges, and so of their nodes.
    node = np.empty(total, np.int32)
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 2), np.int64), np.empty(0, np.uint64))]
    for block, mine in zip(blocks, conjunct_of, strict=True):
        nodes = source[block.owners]
        node[mine] = nodes
        chosen = np.flatnonzero(is_indexed[nodes])
        if len(chosen):
            signatures, words = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.uint64)
            compared = np.empty((len(chosen), 2), np.int64)
            find_words(words, signatures, compared, nodes[chosen], block.rows[chosen], *block.columns.table)
            parts.append((mine[chosen], signatures, compared, words))
    found, signature, values, word = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    # First the entries that no hash finds, then the others by hash.
    direct = np.flatnonzero(~is_indexed[node])
    by_hash = _by_key(word, node[found], signature, values)
    found, signature, values, word = found[by_hash], signature[by_hash], values[by_hash], word[by_hash]
    found_node = node[found].astype(np.int64)
    entry_of = np.empty(total, np.int64)
    entry_of[direct] = np.arange(len(direct))
    entry_of[found] = np.arange(len(direct), total)
    direct_node = node[direct]
    begins = np.flatnonzero(np.diff(direct_node, prepend=-1))
    ends = np.append(begins[1:], len(direct))[: len(begins)]
    rows = [np.stack([np.full(len(begins), -1), begins, ends], axis=1)]
    owners = [direct_node[begins].astype(np.int64)]
    pairs = np.sort(found_node << 33 | signature)
    pairs = pairs[np.flatnonzero(np.diff(pairs, prepend=-1))]
    number = pairs & ((1 << 33) - 1)
    rows.append(np.stack([number, (number >> 16) - 1, (number & 65535) - 1], axis=1))
    owners.append(pairs >> 33)
    owner = np.concatenate(owners)
    by_node = np.argsort(owner, kind="stable")
    table = np.concatenate(rows)[by_node]
    place_of = np.empty(len(owner), np.int64)
    place_of[by_node] = np.arange(len(owner))
    which = place_of[len(rows[0]) + np.searchsorted(pairs, found_node << 33 | signature)]
    return FrIndex(
        first_of(owner, len(is_indexed)),
        table.astype(np.int32),
        mixed(apart(owner[by_node]), table[:, 0]),
        entry_of,
        len(direct),
        word,
        which,
        values,
    )


def _by_key(words: Words, nodes: NDArray[np.int32], signatures: Ints, values: Ints) -> Ints:
    """The order of keys by hash, in which equal keys are adjacent."""
    order = order_of(words)
    ordered = words[order]
    hit = np.flatnonzero(ordered[1:] == ordered[:-1])
    one, other = order[hit], order[hit + 1]
    alike = (nodes[one] == nodes[other]) & (signatures[one] == signatures[other])
    if (alike & (values[one] == values[other]).all(axis=1)).all():
        return order
    return np.lexsort((values[:, 1], values[:, 0], signatures, nodes, words))


def fr_table(fr: FrIndex) -> tuple[Words, Ints]:
    """The bits and the table of the FR index."""
    words, keys = fr.words, np.column_stack([fr.which, fr.values])
    is_first = np.ones(len(words), bool)
    is_first[1:] = (words[1:] != words[:-1]) | (keys[1:] != keys[:-1]).any(axis=1)
    begins = np.flatnonzero(is_first)
    table = aligned(1 << int(2 * len(begins)).bit_length(), len(FrSlot))
    table[:] = 0
    bits = np.zeros(min(_BITS_MAX, 1 << int(16 * len(begins) + 63).bit_length()) // 64, np.uint64)
    _insert(words, fr.which, fr.values, begins, fr.first_found, table, bits)
    return bits, table


@kernel(allocates=True)
def _insert(
    words: NDArray[np.uint64],
    which: NDArray[np.int64],
    values: Matrix[np.int64],
    begins: NDArray[np.int64],
    first_entry: int,
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
        while table[place, FrSlot.SIGNATURE] != 0:
            place = (place + np.uint64(1)) & mask
        table[place, FrSlot.SIGNATURE] = which[begin] + 1
        table[place, FrSlot.VALUE] = values[begin, 0]
        table[place, FrSlot.OTHER_VALUE] = values[begin, 1]
        table[place, FrSlot.ENTRIES] = (first_entry + begin) << 32 | (first_entry + end)


# ── AN ─────────────────────────────────────────────────────────────────────────────────────────────


class AnIndex(NamedTuple):
    usable: NDArray[np.bool_]
    first: NDArray[np.int32]
    entries: NDArray[np.int32]  # [entry, 2]: wait, bucket
    lanes: NDArray[np.int32]
    mask: int
    keys: WaitKeys


def an_index(blocks: Sequence[ConjunctBlock], first_wait: int, waits: int, is_dynamic: NDArray[np.bool_]) -> AnIndex:
    """The AN index: waits by a value that each conjunct of their filter predicate fixes, if all of them do."""
    usable = np.zeros(waits, bool)
    spoilt = np.zeros(waits, bool)
    conjuncts = np.zeros(waits, np.int64)
    found = []
    for block in blocks:
        table = block.columns.table
        wait = block.owners - first_wait
        conjuncts[wait] += 1
        has_key = table.equal[block.rows] > 0 if len(table.equal) else np.zeros(len(wait), bool)
        usable[wait[has_key]] = True
        spoilt[wait[~has_key]] = True
        if has_key.any():
            atom = table.atoms[block.rows[has_key], 0]
            found.append((wait[has_key], atom[:, 0] >> 1, atom[:, 1]))
    usable &= ~spoilt & ~is_dynamic
    wait, lane, value = (np.concatenate([one[k] for one in found] or [np.empty(0, np.int64)]) for k in range(3))
    chosen = usable[wait]
    wait, lane, value = wait[chosen], lane[chosen], value[chosen]
    first = first_of(wait, waits)
    place = places_of(wait, first)
    words = mixed(apart(lane), value)
    # Large: waits that share a bucket are visited in vain by every event with the other's value.
    mask = (1 << max(4, int(16 * _distinct(words)).bit_length())) - 1
    entries = np.empty((len(wait), 2), np.int32)
    entries[place, 0] = wait
    entries[place, 1] = (words & np.uint64(mask)).astype(np.int32)
    keys = WaitKeys(np.full(waits, -1, np.int32), np.zeros(waits, np.int64))
    only = conjuncts[wait] == 1
    keys.lane[wait[only]], keys.value[wait[only]] = lane[only], value[only]
    return AnIndex(usable, first, entries, np.flatnonzero(np.bincount(lane)).astype(np.int32), mask, keys)


def _distinct(words: Words) -> int:
    ordered = np.sort(words)
    return int((ordered[1:] != ordered[:-1]).sum()) + 1 if len(words) else 0

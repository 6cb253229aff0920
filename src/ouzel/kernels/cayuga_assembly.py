"""Assembling merged automata: conjuncts with their atoms and programs, the FR index, the AN index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ouzel.kernels.cayuga_columns import ConjunctColumns, Ints, PatternColumns, Words, apart, mix, mixed
from ouzel.kernels.cayuga_tables import (
    INT64_MAX,
    INT64_MIN,
    Automata,
    Code,
    Conjunct,
    Edge,
    Finding,
    Node,
    ProgramTable,
)

# Nodes with fewer edges are not worth an index.
FR_EDGES_MIN = 9
_GREATEST = int(Conjunct.GREATEST)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)


class Owners(NamedTuple):
    """The query that a merged node is built from: its pattern, place and row."""

    pattern: NDArray[np.int32]
    place: NDArray[np.int32]
    row: NDArray[np.int32]

    @property
    def total(self) -> int:
        return int(self.row.size)


class MergedEdges(NamedTuple):
    """All edges, in blocks of one edge of a pattern: where they lead and which rows they are built from."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    blocks: list[tuple[int, int, NDArray[np.int32]]]  # pattern, number of the edge, rows


class _ConjunctBlock(NamedTuple):
    """One conjunct of one edge or node of a pattern, for the rows that are built."""

    pattern: int
    columns: ConjunctColumns
    rows: NDArray[np.int32]
    owners: NDArray[np.int64]


def _conjunct_blocks(
    pattern: int, conjuncts: Sequence[ConjunctColumns], rows: NDArray[np.int32], owners: NDArray[np.int64]
) -> list[_ConjunctBlock]:
    blocks = []
    for columns in conjuncts:
        if columns.enabled is None:
            blocks.append(_ConjunctBlock(pattern, columns, rows, owners))
        else:
            chosen = columns.enabled[rows]
            blocks.append(_ConjunctBlock(pattern, columns, rows[chosen], owners[chosen]))
    return blocks


def equalities(conjunct: ConjunctColumns, rows: NDArray[np.int32]) -> Ints:
    """[row, 4] lane and value of the first two equalities of a conjunct; lane -1 where there is none."""
    if not conjunct.atoms:
        return np.tile(np.array([-1, 0], np.int64), (len(rows), 2))
    found: Ints = conjunct.table.keys[rows]
    return found


@njit(cache=True)
def _find_words(words, signatures, source, owners, keys):
    """What the FR index finds a conjunct of an edge by: its node, which lanes it compares, and their values."""
    for k in range(len(words)):
        lane, other = keys[k, 0], keys[k, 2]
        signatures[k] = (lane + 1) * 65536 + other + 1
        word = mix((np.uint64(source[owners[k]]) + np.uint64(1)) * _SECOND_FACTOR, signatures[k])
        if lane >= 0:
            word = mix(word, keys[k, 1])
        if other >= 0:
            word = mix(word, keys[k, 3])
        words[k] = word | np.uint64(1)


@njit(cache=True)
def _places(owners, first):
    """Where things go so that they stand by owner, in the order they have within one."""
    following = first.copy()
    place = np.empty(len(owners), np.int64)
    for k in range(len(owners)):
        place[k] = following[owners[k]]
        following[owners[k]] += 1
    return place


@njit(cache=True)
def _write_atoms(atoms, first, places, rows, lane, negated, low_at, high_at, columns, present):
    for k in range(len(rows)):
        row = rows[k]
        place = first[places[k]]
        for atom in range(len(lane)):
            if present[row, atom]:
                atoms[place, 0] = lane[atom]
                atoms[place, 1] = negated[atom]
                atoms[place, 2] = columns[low_at[atom], row]
                atoms[place, 3] = columns[high_at[atom], row]
                place += 1


@njit(cache=True)
def _write_column(table, column, places, rows, values):
    for k in range(len(rows)):
        table[places[k], column] = values[rows[k]]


def assembled(
    patterns: Sequence[PatternColumns],
    programs: ProgramTable,
    owners: Owners,
    edges: MergedEdges,
    count: int,
) -> Automata:
    """The automata of merged nodes and edges, with their indexes."""
    edge_count = len(edges.source)
    edge_blocks: list[_ConjunctBlock] = []
    begin = 0
    for number, index, rows in edges.blocks:
        ids = np.arange(begin, begin + len(rows), dtype=np.int64)
        edge_blocks += _conjunct_blocks(number, patterns[number].edges[index].conjuncts, rows, ids)
        begin += len(rows)
    # Edges stand by source, and within it by what the FR index finds them by, so that a bucket is one stretch.
    words = np.zeros(edge_count, np.uint64)
    keys = []
    for block in edge_blocks:
        signature, word = np.empty(len(block.rows), np.int64), np.empty(len(block.rows), np.uint64)
        _find_words(word, signature, edges.source, block.owners, equalities(block.columns, block.rows))
        words[block.owners] = word
        keys.append((signature, word))
    order = np.argsort(edges.source.astype(np.uint64) << np.uint64(32) | words >> np.uint64(32))
    new_edge = np.empty(edge_count, np.int64)
    new_edge[order] = np.arange(edge_count)
    source, target = edges.source[order], edges.target[order]
    edge_first = _first_of(source, count)

    node_blocks: list[_ConjunctBlock] = []
    slot = np.zeros(count, np.int32)
    key = np.full((count, 3), -1, np.int32)
    final = np.zeros(count, np.uint8)
    for number, pattern in enumerate(patterns):
        for place in range(1, len(pattern.nodes)):
            ids = np.flatnonzero((owners.pattern == number) & (owners.place == place))
            if not ids.size:
                continue
            node = pattern.nodes[place]
            slot[ids + 1] = node.slot
            final[ids + 1] = place == len(pattern.nodes) - 1
            if node.key is not None:
                key[ids + 1] = node.key
            node_blocks += _conjunct_blocks(number, node.conjuncts, owners.row[ids], edge_count + ids + 1)

    edge_blocks = [block._replace(owners=new_edge[block.owners]) for block in edge_blocks]
    conjuncts = _place_conjuncts([*edge_blocks, *node_blocks], edge_count + count, patterns)
    static = _static_keys(node_blocks, edge_count, count, key[:, 0] >= 0)
    finding = np.where(key[:, 0] >= 0, Finding.DYNAMIC, np.where(static.usable, Finding.STATIC, Finding.EVERY))
    fr = _fr_index(edge_blocks, keys, conjuncts.of_block[: len(edge_blocks)], source, edge_first)
    registers = _registers(patterns, edges, new_edge)
    life = _lives(edge_first, target, conjuncts.first, conjuncts.table, edge_count, final, np.empty(count, np.int64))
    nodes = np.zeros((count + 1, len(Node)), np.int32)
    nodes[:, Node.EDGE_FIRST] = edge_first
    nodes[:, Node.CONJUNCT_FIRST] = conjuncts.first[edge_count:]
    nodes[:, Node.SIGNATURE_FIRST] = fr.signature_first
    nodes[:, Node.AN_FIRST] = static.first
    nodes[:count, Node.SLOT] = slot
    nodes[:count, Node.FINDING] = finding
    nodes[:count, Node.KEY_LANE : Node.KEY_VALUE_LANE + 1] = key
    nodes[:count, Node.FINAL] = final
    table = np.zeros((edge_count + 1, len(Edge)), np.int32)
    table[:edge_count, Edge.TARGET] = target
    table[:, Edge.CONJUNCT_FIRST] = conjuncts.first[: edge_count + 1]
    table[:, Edge.REGISTER_FIRST] = registers[0]
    return Automata(
        nodes=nodes,
        life=life,
        edges=table,
        registers=registers[1],
        conjuncts=conjuncts.table,
        atoms=conjuncts.atoms,
        programs=conjuncts.programs,
        code=Code(*programs.arrays(), *_parameters(patterns)),
        signatures=fr.signatures,
        fr_keys=fr.keys,
        fr_ranges=fr.ranges,
        fr_entries=fr.entries,
        an_entries=static.entries,
        an_lanes=static.lanes,
        an_mask=static.mask,
        ai_lanes=np.unique(key[key[:, 0] >= 0, 0]).astype(np.int32),
    )


def _first_of(owners: NDArray[np.integer], count: int) -> NDArray[np.int32]:
    """Where each owner's things begin, once they stand in the order of their owners."""
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int32)


class _Conjuncts(NamedTuple):
    first: NDArray[np.int32]  # by owner
    table: Ints
    atoms: Ints
    programs: NDArray[np.int32]
    of_block: list[Ints]


def _place_conjuncts(
    blocks: Sequence[_ConjunctBlock], owner_count: int, patterns: Sequence[PatternColumns]
) -> _Conjuncts:
    """Conjuncts in order of their owners, with their atoms and programs beside them."""
    owners = np.concatenate([block.owners for block in blocks] or [np.empty(0, np.int64)])
    total = len(owners)
    first = _first_of(owners, owner_count)
    place = _places(owners, first)
    atom_count = np.zeros(total, np.int64)
    program_count = np.zeros(total, np.int64)
    table = np.zeros((total + 1, len(Conjunct)), np.int64)
    table[:, Conjunct.PARAMETER_ROW] = -1
    table[:, Conjunct.LEAST] = INT64_MIN
    table[:, Conjunct.GREATEST] = INT64_MAX
    of_block = []
    begin = 0
    row_begin = np.cumsum([0, *(len(p.parameter_ints) for p in patterns)])
    for block in blocks:
        mine = place[begin : begin + len(block.rows)]
        begin += len(block.rows)
        of_block.append(mine)
        if block.columns.atoms:
            atom_count[mine] = block.columns.table.counts[block.rows]
        if block.columns.programs:
            program_count[mine] = len(block.columns.programs)
        for column, bound in ((Conjunct.LEAST, block.columns.least), (Conjunct.GREATEST, block.columns.greatest)):
            if bound is not None:
                _write_column(table, int(column), mine, block.rows, np.ascontiguousarray(bound))
        if patterns[block.pattern].parameter_ints.size:
            table[mine, Conjunct.PARAMETER_ROW] = row_begin[block.pattern] + block.rows
    atom_first = np.concatenate([[0], np.cumsum(atom_count)])
    program_first = np.concatenate([[0], np.cumsum(program_count)])
    atoms = np.zeros((int(atom_first[-1]), 4), np.int64)
    programs = np.zeros(int(program_first[-1]), np.int32)
    for block, mine in zip(blocks, of_block, strict=True):
        one = block.columns.table
        _write_atoms(
            atoms,
            atom_first,
            mine,
            block.rows,
            one.lane,
            one.negated,
            one.low_at,
            one.high_at,
            one.columns,
            one.present,
        )
        for k, program in enumerate(block.columns.programs):
            programs[program_first[mine] + k] = program
    table[:, Conjunct.ATOM_FIRST] = atom_first
    table[:, Conjunct.PROGRAM_FIRST] = program_first
    return _Conjuncts(first, table, atoms, programs, of_block)


class _Fr(NamedTuple):
    signature_first: NDArray[np.int32]
    signatures: NDArray[np.int32]
    keys: Words
    ranges: NDArray[np.int32]
    entries: NDArray[np.int32]


def _fr_index(
    blocks: Sequence[_ConjunctBlock],
    keys: Sequence[tuple[Ints, Words]],
    conjunct_of: Sequence[Ints],
    source: NDArray[np.int32],
    edge_first: NDArray[np.int32],
) -> _Fr:
    """Entries of nodes with few edges stand one after the other; those of others by what a hash finds them by."""
    nodes = len(edge_first) - 1
    is_indexed = np.diff(edge_first) >= FR_EDGES_MIN
    total = sum(len(block.owners) for block in blocks)
    # Conjuncts of edges come first and stand in the order of their edges, hence of their nodes.
    edge, signature, word = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.uint64)
    for block, (block_signature, block_word), mine in zip(blocks, keys, conjunct_of, strict=True):
        edge[mine], signature[mine], word[mine] = block.owners, block_signature, block_word
    node = source[edge].astype(np.int64)
    indexed = is_indexed[node]
    # First the entries that no hash finds, then the others by hash.
    found = np.flatnonzero(indexed)
    order = np.concatenate([np.flatnonzero(~indexed), found[np.argsort(word[found])]])
    entries = np.stack([edge[order], order], axis=1).astype(np.int32)
    direct = total - len(found)
    listed = node[order[:direct]]
    begins = np.flatnonzero(np.diff(listed, prepend=-1))
    ends = np.append(begins[1:], direct)[: len(begins)]
    rows = [np.stack([np.full(len(begins), -1), begins, ends], axis=1)]
    owners = [listed[begins]]
    words = word[order][direct:]
    table, ranges = np.zeros(1, np.uint64), np.zeros((1, 2), np.int32)
    if len(words):
        begins = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        ends = np.append(begins[1:], len(words))
        places = 1 << int(2 * len(begins)).bit_length()
        table, ranges = np.zeros(places, np.uint64), np.zeros((places, 2), np.int32)
        _insert(words[begins], begins + direct, ends + direct, table, ranges)
        pairs = np.sort(node[indexed] << 33 | signature[indexed])
        pairs = pairs[np.flatnonzero(np.diff(pairs, prepend=-1))]
        number = pairs & ((1 << 33) - 1)
        rows.append(np.stack([number, (number >> 16) - 1, (number & 65535) - 1], axis=1))
        owners.append(pairs >> 33)
    owner = np.concatenate(owners)
    by_node = np.argsort(owner, kind="stable")
    signature_first = _first_of(owner, nodes)
    return _Fr(signature_first, np.concatenate(rows)[by_node].astype(np.int32), table, ranges, entries)


@njit(cache=True)
def _insert(words, begins, ends, table, ranges):
    mask = np.uint64(len(table) - 1)
    for k in range(len(words)):
        place = words[k] >> np.uint64(32) & mask
        while table[place] != 0:
            place = (place + np.uint64(1)) & mask
        table[place] = words[k]
        ranges[place, 0] = begins[k]
        ranges[place, 1] = ends[k]


class _Static(NamedTuple):
    usable: NDArray[np.bool_]
    first: NDArray[np.int32]
    entries: NDArray[np.int32]  # [entry, 2]: node, bucket
    lanes: NDArray[np.int32]
    mask: int


def _static_keys(
    blocks: Sequence[_ConjunctBlock], edge_count: int, nodes: int, otherwise: NDArray[np.bool_]
) -> _Static:
    """The AN index: nodes by a value that each conjunct of their filter predicate fixes, if all of them do."""
    usable = np.zeros(nodes, bool)
    spoilt = np.zeros(nodes, bool)
    found = []
    for block in blocks:
        lane, value = equalities(block.columns, block.rows).T[:2]
        node = block.owners - edge_count
        usable[node[lane >= 0]] = True
        spoilt[node[lane < 0]] = True
        found.append((node, lane, value))
    usable &= ~spoilt & ~otherwise
    node, lane, value = (np.concatenate([one[k] for one in found] or [np.empty(0, np.int64)]) for k in range(3))
    chosen = usable[node] if len(node) else np.empty(0, bool)
    node, lane, value = node[chosen], lane[chosen], value[chosen]
    first = _first_of(node, nodes)
    place = _places(node, first)
    words = mixed(apart(lane), value)
    # Roomy: who shares a bucket is looked at in vain by every event that has the other's value.
    mask = (1 << max(4, int(16 * _distinct(words)).bit_length())) - 1
    entries = np.empty((len(node), 2), np.int32)
    entries[place, 0] = node
    entries[place, 1] = (words & np.uint64(mask)).astype(np.int32)
    return _Static(usable, first, entries, np.flatnonzero(np.bincount(lane)).astype(np.int32), mask)


def _distinct(words: Words) -> int:
    ordered = np.sort(words)
    return int((ordered[1:] != ordered[:-1]).sum()) + 1 if len(words) else 0


def _registers(
    patterns: Sequence[PatternColumns], edges: MergedEdges, new_edge: Ints
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    counts = np.zeros(len(new_edge), np.int64)
    begin = 0
    spans = []
    for number, index, rows in edges.blocks:
        ids = new_edge[begin : begin + len(rows)]
        begin += len(rows)
        registers = patterns[number].edges[index].registers
        counts[ids] = len(registers)
        spans.append((ids, registers))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    table = np.zeros((int(first[-1]), 3), np.int32)
    for ids, registers in spans:
        for k, register in enumerate(registers):
            table[first[ids] + k] = register
    return first, table


@njit(cache=True)
def _lives(edge_first, target, conjunct_first, conjuncts, edge_count, final, life):
    """How long an instance may last at each node and still lead to a result. Edges lead to higher numbers."""
    for node in range(len(life) - 1, -1, -1):
        if final[node]:
            life[node] = INT64_MAX
            continue
        longest = np.int64(INT64_MIN)
        for edge in range(edge_first[node], edge_first[node + 1]):
            if target[edge] == node:
                continue
            for conjunct in range(conjunct_first[edge], conjunct_first[edge + 1]):
                longest = max(longest, min(conjuncts[conjunct, _GREATEST], life[target[edge]]))
        allowed = np.int64(INT64_MIN)
        owner = edge_count + node
        for conjunct in range(conjunct_first[owner], conjunct_first[owner + 1]):
            allowed = max(allowed, conjuncts[conjunct, _GREATEST])
        life[node] = min(longest, allowed)
    return life


def _parameters(patterns: Sequence[PatternColumns]) -> tuple[Ints, NDArray[np.float64], NDArray[np.uint8]]:
    width = max((p.parameter_ints.shape[1] for p in patterns), default=0)
    total = sum(len(p.parameter_ints) for p in patterns)
    ints, floats = np.zeros((total, width), np.int64), np.zeros((total, width), np.float64)
    nulls = np.zeros((total, width), np.uint8)
    begin = 0
    for pattern in patterns:
        rows, columns = pattern.parameter_ints.shape
        ints[begin : begin + rows, :columns] = pattern.parameter_ints
        floats[begin : begin + rows, :columns] = pattern.parameter_floats
        nulls[begin : begin + rows, :columns] = pattern.parameter_nulls
        begin += rows
    return ints, floats, nulls

"""Building merged automata out of columns: one row a query, so that 400,000 queries are a few array operations.

A *pattern* of nodes and edges is the same for all queries of a template; only constants differ, and they are columns.
Two nodes are merged if everything that leads to them is equal (CESAR, Definition 2), which a hash of 128 bits decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
# Nodes with fewer edges are not worth an index.
FR_EDGES_MIN = 9
_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_GREATEST = int(Conjunct.GREATEST)
_SEEDS = (np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344))


class RangeAtom(NamedTuple):
    """`low <= lane <= high` of the event that is read, or not so; by query. Absent where `present` is False."""

    lane: int
    negated: bool
    low: Ints
    high: Ints
    equality: bool = False
    present: NDArray[np.bool_] | None = None


class ConjunctColumns(NamedTuple):
    """One conjunct of a predicate, for every query of a template."""

    atoms: tuple[RangeAtom, ...] = ()
    programs: tuple[int, ...] = ()
    least: Ints | None = None  # bounds of DUR
    greatest: Ints | None = None
    enabled: NDArray[np.bool_] | None = None


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


class Built(NamedTuple):
    automata: Automata
    # For each pattern: the node of every place and query.
    node_of: list[NDArray[np.int32]]


def mixed(folded: Words, value: NDArray[np.generic]) -> Words:
    """A hash of what was folded so far and one more column."""
    with np.errstate(over="ignore"):
        words = (folded ^ value.astype(np.int64, copy=False).view(np.uint64)) * _FIRST_FACTOR
        words ^= words >> np.uint64(32)
        words *= _SECOND_FACTOR
        words ^= words >> np.uint64(29)
    return words


def build(patterns: Sequence[PatternColumns], programs: ProgramTable, *, merge: bool = True) -> Built:
    """Merge the automata of all queries of all patterns."""
    node_of, owners = _nodes(patterns, merge)
    count = 1 + owners.total
    edges = _edges(patterns, node_of, owners)
    return _assembled(patterns, programs, node_of, owners, edges, count)


# ── Merging ────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True)
def _mix(folded, value):
    word = (folded ^ np.uint64(value)) * _FIRST_FACTOR
    word ^= word >> np.uint64(32)
    word *= _SECOND_FACTOR
    return word ^ (word >> np.uint64(29))


@njit(cache=True)
def _fold_atom(words, code, low, high, is_range, present):
    """Add the hash of an atom to those of its conjuncts: a sum, since the order of atoms says nothing."""
    for row in range(len(low)):
        if len(present) == 0 or present[row]:
            for k in range(2):
                word = _mix(_mix(_SEEDS[k], code), low[row])
                if is_range:
                    word = _mix(word, high[row])
                words[k, row] += word


@njit(cache=True)
def _fold_values(words, values):
    """Fold a column into hashes; a column of one value is the same for all."""
    step = 0 if len(values) == 1 else 1
    for k in range(2):
        for row in range(words.shape[1]):
            words[k, row] = _mix(words[k, row], values[row * step])


@njit(cache=True)
def _fold_words(words, others):
    for k in range(2):
        for row in range(words.shape[1]):
            words[k, row] = _mix(words[k, row], others[k, row])


def _fold_one(words: Words, value: int) -> None:
    _fold_values(words, np.array([value], np.int64))


def _seeded(count: int) -> Words:
    return np.repeat(np.array(_SEEDS, np.uint64)[:, None], count, axis=1)


_ALWAYS: NDArray[np.bool_] = np.empty(0, bool)


def _fold_parameters(words: Words, pattern: PatternColumns) -> None:
    for k in range(pattern.parameter_ints.shape[1]):
        _fold_values(words, np.ascontiguousarray(pattern.parameter_ints[:, k]))
        _fold_values(words, np.ascontiguousarray(pattern.parameter_floats[:, k]).view(np.int64))
        _fold_values(words, pattern.parameter_nulls[:, k].astype(np.int64))


def _conjunct_words(conjunct: ConjunctColumns, pattern: PatternColumns) -> Words:
    words = np.zeros((2, pattern.count), np.uint64)
    for atom in conjunct.atoms:
        present = _ALWAYS if atom.present is None else atom.present
        is_range = atom.low is not atom.high
        _fold_atom(words, 2 * atom.lane + atom.negated, _own(atom.low), _own(atom.high), is_range, present)
    for program in conjunct.programs:
        _fold_one(words, program)
    if conjunct.programs:
        _fold_parameters(words, pattern)
    for bound in (conjunct.least, conjunct.greatest):
        if bound is None:
            _fold_one(words, 1)
        else:
            _fold_values(words, _own(bound))
    if conjunct.enabled is not None:
        words[:, ~conjunct.enabled] = 0
    return words


def _own(column: Ints) -> Ints:
    """A column of one value for all queries takes room for one only; loops want it whole."""
    return np.ascontiguousarray(column)


def _predicate_words(conjuncts: Sequence[ConjunctColumns], pattern: PatternColumns) -> Words:
    words = _seeded(pattern.count)
    for conjunct in conjuncts:
        _fold_words(words, _conjunct_words(conjunct, pattern))
    return words


def _place_words(pattern: PatternColumns) -> list[Words]:
    """For every place: what leads to it and how it waits, by query."""
    found: list[Words] = [_seeded(pattern.count)]
    for place in range(1, len(pattern.nodes)):
        node = pattern.nodes[place]
        words = _predicate_words(node.conjuncts, pattern)
        _fold_one(words, 2 * node.slot + (place == len(pattern.nodes) - 1))
        for part in node.key or (-1,):
            _fold_one(words, part)
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
                    _fold_words(words, found[edge.source])
        found.append(words)
    return found


class _Owners(NamedTuple):
    """The query that a merged node is built from: its pattern, place and row."""

    pattern: NDArray[np.int32]
    place: NDArray[np.int32]
    row: NDArray[np.int32]

    @property
    def total(self) -> int:
        return int(self.row.size)


def _nodes(patterns: Sequence[PatternColumns], merge: bool) -> tuple[list[NDArray[np.int32]], _Owners]:
    """The node of every place and query, and for each node a query that it is built from."""
    sizes = [(len(p.nodes) - 1) * p.count for p in patterns]
    total = sum(sizes)
    pattern_of = np.repeat(np.arange(len(patterns), dtype=np.int32), sizes)
    place_of = np.concatenate(
        [np.repeat(np.arange(1, len(p.nodes), dtype=np.int32), p.count) for p in patterns] or [np.empty(0, np.int32)]
    )
    row_of = np.concatenate(
        [np.tile(np.arange(p.count, dtype=np.int32), len(p.nodes) - 1) for p in patterns] or [np.empty(0, np.int32)]
    )
    if merge and total:
        words = [one for pattern in patterns for one in _place_words(pattern)[1:]]
        first, second = (np.concatenate([one[k] for one in words]) for k in (0, 1))
        order = np.argsort(first)
        sorted_first, sorted_second = first[order], second[order]
        begins = np.ones(total, bool)
        begins[1:] = sorted_first[1:] != sorted_first[:-1]
        clash = ~begins
        clash[1:] &= sorted_second[1:] != sorted_second[:-1]
        assert not clash.any(), "two different automata have one hash"
        group_sorted = np.cumsum(begins) - 1
        group = np.empty(total, np.int64)
        group[order] = group_sorted
        representative = order[begins]
    else:
        group = np.arange(total)
        representative = group
    number, by_place = _numbered(patterns, pattern_of, place_of, row_of, group, representative)
    chosen = representative[by_place]
    node_of = []
    begin = 0
    for pattern, size in zip(patterns, sizes, strict=True):
        nodes = np.zeros((len(pattern.nodes), pattern.count), np.int32)
        nodes[1:] = number[group[begin : begin + size]].reshape(len(pattern.nodes) - 1, pattern.count)
        node_of.append(nodes)
        begin += size
    return node_of, _Owners(pattern_of[chosen], place_of[chosen], row_of[chosen])


def _numbered(
    patterns: Sequence[PatternColumns],
    pattern_of: NDArray[np.int32],
    place_of: NDArray[np.int32],
    row_of: NDArray[np.int32],
    group: Ints,
    representative: Ints,
) -> tuple[NDArray[np.int32], Ints]:
    """Numbers of nodes from the start outwards, so that edges lead upwards, and the nodes in that order.

    Nodes that one event reaches together stand together: at first those whose edges have the same key in the FR index,
    then the children of one node. Memory is read in stretches so.
    """
    begins = np.cumsum([0, *((len(p.nodes) - 1) * p.count for p in patterns)])
    pattern, place, row = pattern_of[representative], place_of[representative], row_of[representative]
    number = np.zeros(len(representative), np.int32)
    order: list[Ints] = []
    for current in np.unique(place).tolist():
        mine = np.flatnonzero(place == current)
        near = np.zeros(len(mine), np.uint64)
        for k in np.unique(pattern[mine]).tolist():
            chosen = pattern[mine] == k
            rows = row[mine[chosen]]
            entering = next(edge for edge in patterns[k].edges if edge.target == current)
            if entering.source:
                source = begins[k] + (entering.source - 1) * patterns[k].count + rows
                near[chosen] = number[group[source]].astype(np.uint64)
            elif entering.conjuncts:
                block = _ConjunctBlock(k, entering.conjuncts[0], rows, rows.astype(np.int64))
                lane, value, other, other_value = _equalities(block)
                word = mixed(mixed(lane.astype(np.uint64), value), other)
                near[chosen] = mixed(word, other_value)
        mine = mine[np.argsort(near)]
        number[mine] = 1 + sum(one.size for one in order) + np.arange(len(mine), dtype=np.int32)
        order.append(mine)
    return number, np.concatenate(order or [np.empty(0, np.int64)])


class _Edges(NamedTuple):
    """All edges, in blocks of one edge of a pattern: where they lead and which rows they are built from."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    blocks: list[tuple[int, int, NDArray[np.int32]]]  # pattern, number of the edge, rows


def _edges(patterns: Sequence[PatternColumns], node_of: list[NDArray[np.int32]], owners: _Owners) -> _Edges:
    blocks, sources, targets = [], [], []
    for number, pattern in enumerate(patterns):
        mine = owners.pattern == number
        for place in range(1, len(pattern.nodes)):
            rows = owners.row[mine & (owners.place == place)]
            if not rows.size:
                continue
            for index, edge in enumerate(pattern.edges):
                if edge.target == place:
                    blocks.append((number, index, rows))
                    sources.append(node_of[number][edge.source, rows])
                    targets.append(node_of[number][place, rows])
    empty = [np.empty(0, np.int32)]
    return _Edges(np.concatenate(sources or empty), np.concatenate(targets or empty), blocks)


# ── Assembly ───────────────────────────────────────────────────────────────────────────────────────


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


def _equalities(block: _ConjunctBlock) -> tuple[Ints, Ints, Ints, Ints]:
    """Lane and value of the first two equalities of each conjunct; lane -1 where there is none."""
    count = len(block.rows)
    lanes = np.full((2, count), -1, np.int64)
    values = np.zeros((2, count), np.int64)
    for atom in sorted(block.columns.atoms, key=lambda one: one.lane):
        if atom.equality and not atom.negated:
            present = _ALWAYS if atom.present is None else atom.present
            _note_equality(lanes, values, block.rows, present, atom.lane, _own(atom.low))
    return lanes[0], values[0], lanes[1], values[1]


@njit(cache=True)
def _note_equality(lanes, values, rows, present, lane, constants):
    for k in range(len(rows)):
        if len(present) == 0 or present[rows[k]]:
            if lanes[0, k] < 0:
                lanes[0, k] = lane
                values[0, k] = constants[rows[k]]
            elif lanes[1, k] < 0:
                lanes[1, k] = lane
                values[1, k] = constants[rows[k]]


@njit(cache=True)
def _write_atoms(atoms, following, rows, present, lane, negated, low, high):
    """Write an atom of every conjunct that has it to where its next one goes."""
    for k in range(len(rows)):
        row = rows[k]
        if len(present) == 0 or present[row]:
            place = following[k]
            following[k] = place + 1
            atoms[place, 0] = lane
            atoms[place, 1] = negated
            atoms[place, 2] = low[row]
            atoms[place, 3] = high[row]


def _assembled(
    patterns: Sequence[PatternColumns],
    programs: ProgramTable,
    node_of: list[NDArray[np.int32]],
    owners: _Owners,
    edges: _Edges,
    count: int,
) -> Built:
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
        lane, value, other, other_value = _equalities(block)
        signature = (lane + 1) * 65536 + other + 1
        word = mixed(mixed(edges.source[block.owners].astype(np.uint64), signature), value)
        word = np.where(lane >= 0, word, mixed(edges.source[block.owners].astype(np.uint64), signature))
        word = np.where(other >= 0, mixed(word, other_value), word) | np.uint64(1)
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
    automata = Automata(
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
        an_entries=np.stack([static.node, static.bucket], axis=1),
        an_lanes=static.lanes,
        an_mask=static.mask,
        ai_lanes=np.unique(key[key[:, 0] >= 0, 0]).astype(np.int32),
    )
    return Built(automata, node_of)


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
    order = np.argsort(owners)
    place = np.empty(total, np.int64)
    place[order] = np.arange(total)
    first = _first_of(owners, owner_count)
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
        for atom in block.columns.atoms:
            atom_count[mine] += 1 if atom.present is None else atom.present[block.rows]
        program_count[mine] = len(block.columns.programs)
        for column, bound in ((Conjunct.LEAST, block.columns.least), (Conjunct.GREATEST, block.columns.greatest)):
            if bound is not None:
                table[mine, column] = bound[block.rows]
        if patterns[block.pattern].parameter_ints.size:
            table[mine, Conjunct.PARAMETER_ROW] = row_begin[block.pattern] + block.rows
    atom_first = np.concatenate([[0], np.cumsum(atom_count)])
    program_first = np.concatenate([[0], np.cumsum(program_count)])
    atoms = np.zeros((int(atom_first[-1]), 4), np.int64)
    programs = np.zeros(int(program_first[-1]), np.int32)
    for block, mine in zip(blocks, of_block, strict=True):
        following = atom_first[mine].copy()
        # Equalities first: they fail most often.
        for atom in sorted(block.columns.atoms, key=lambda one: not one.equality):
            present = _ALWAYS if atom.present is None else atom.present
            _write_atoms(
                atoms, following, block.rows, present, atom.lane, atom.negated, _own(atom.low), _own(atom.high)
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
        pairs = np.unique(node[indexed] << 33 | signature[indexed])
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
    node: NDArray[np.int32]
    bucket: NDArray[np.int32]
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
        lane, value, _, _ = _equalities(block)
        node = block.owners - edge_count
        usable[node[lane >= 0]] = True
        spoilt[node[lane < 0]] = True
        found.append((node, lane, value))
    usable &= ~spoilt & ~otherwise
    node, lane, value = (np.concatenate([one[k] for one in found] or [np.empty(0, np.int64)]) for k in range(3))
    chosen = usable[node] if len(node) else np.empty(0, bool)
    node, lane, value = node[chosen], lane[chosen], value[chosen]
    order = np.argsort(node, kind="stable")
    node, lane, value = node[order], lane[order], value[order]
    pairs = len(np.unique(mixed(lane.astype(np.uint64), value))) if len(node) else 0
    mask = (1 << max(4, int(2 * pairs).bit_length())) - 1
    bucket = (mixed(lane.astype(np.uint64), value) & np.uint64(mask)).astype(np.int32)
    first = _first_of(node, nodes)
    return _Static(usable, first, node.astype(np.int32), bucket, np.unique(lane).astype(np.int32), mask)


def _registers(
    patterns: Sequence[PatternColumns], edges: _Edges, new_edge: Ints
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

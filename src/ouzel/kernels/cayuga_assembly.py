"""Assembling merged automata: conjuncts with their atoms and programs, the FR index, the AN index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.cayuga_columns import ConjunctColumns, Ints, PatternColumns, Words
from ouzel.kernels.cayuga_indexes import (
    FR_EDGES_MIN,
    ConjunctBlock,
    an_index,
    first_of,
    fr_index,
    fr_table,
    places_of,
    write_entries,
)
from ouzel.kernels.cayuga_tables import (
    INT64_MAX,
    INT64_MIN,
    Automata,
    Code,
    Conjunct,
    Edge,
    Entry,
    Finding,
    Node,
    ProgramTable,
    Wait,
    aligned,
)
from ouzel.kernels.jit import kernel


class Owners(NamedTuple):
    """The query that a merged node is built from: its pattern, place and row; and how the node waits.

    Nodes are numbered from 1 on, so the first one here is node 1. So are waits.
    """

    pattern: NDArray[np.int32]
    place: NDArray[np.int32]
    row: NDArray[np.int32]
    wait: NDArray[np.int32]  # -1: the node is final
    first_of_wait: NDArray[np.int32]  # by wait: the first place here that waits so

    @property
    def total(self) -> int:
        return int(self.row.size)


class MergedEdges(NamedTuple):
    """All edges, in blocks of one edge of a pattern: where they lead and which rows they are built from."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    blocks: list[tuple[int, int, NDArray[np.int32]]]  # pattern, number of the edge, rows


def _conjunct_blocks(
    pattern: int, conjuncts: Sequence[ConjunctColumns], rows: NDArray[np.int32], owners: NDArray[np.int64]
) -> list[ConjunctBlock]:
    blocks = []
    for columns in conjuncts:
        if columns.enabled is None:
            blocks.append(ConjunctBlock(pattern, columns, rows, owners))
        else:
            chosen = columns.enabled[rows]
            blocks.append(ConjunctBlock(pattern, columns, rows[chosen], owners[chosen]))
    return blocks


@kernel(allocates=True)
def _write_atoms(conjuncts, atoms, used, places, rows, table, counts):
    """Write all atoms of conjuncts from row `used` on; gives the row after the last one."""
    for k in range(len(rows)):
        conjuncts[places[k], Conjunct.ATOM_FIRST] = used
        for atom in range(counts[rows[k]]):
            code = table[rows[k], atom, 0]
            atoms[used, 0] = code >> 1
            atoms[used, 1] = code & 1
            atoms[used, 2] = table[rows[k], atom, 1]
            atoms[used, 3] = table[rows[k], atom, 2]
            used += 1
        conjuncts[places[k], Conjunct.ATOM_LAST] = used
    return used


@kernel(allocates=True)
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
    edge_blocks: list[ConjunctBlock] = []
    begin = 0
    for number, index, rows in edges.blocks:
        ids = np.arange(begin, begin + len(rows), dtype=np.int64)
        edge_blocks += _conjunct_blocks(number, patterns[number].edges[index].conjuncts, rows, ids)
        begin += len(rows)
    # Edges stand by source; those of the start came by what the FR index finds them by, so that a bucket is a stretch.
    source, target = edges.source, edges.target
    new_edge = np.arange(edge_count)
    if (source[1:] < source[:-1]).any():
        order = np.argsort(source, kind="stable")
        new_edge[order] = np.arange(edge_count)
        source, target = source[order], target[order]
        edge_blocks = [block._replace(owners=new_edge[block.owners]) for block in edge_blocks]
    edge_first = first_of(source, count)

    slot = np.zeros(count, np.int32)
    for number, pattern in enumerate(patterns):
        slots = np.array([node.slot for node in pattern.nodes], np.int32)
        mine = slice(None) if len(patterns) == 1 else owners.pattern == number
        slot[1:][mine] = slots[owners.place[mine]]
    wait_blocks, key, stays = _waits(patterns, owners, edge_count)
    wait_count = len(key)
    wait = np.concatenate([np.zeros(1, np.int32), owners.wait])

    conjuncts = _place_conjuncts([*edge_blocks, *wait_blocks], edge_count + wait_count, patterns)
    an = an_index(wait_blocks, edge_count, wait_count, key[:, 0] >= 0)
    finding = np.where(key[:, 0] >= 0, Finding.DYNAMIC, np.where(an.usable, Finding.STATIC, Finding.EVERY))
    is_indexed = np.diff(edge_first) >= FR_EDGES_MIN
    fr = fr_index(edge_blocks, conjuncts.of_block[: len(edge_blocks)], source, is_indexed)
    gates = aligned(count, 2).view(np.uint64)
    gates[:] = 0
    known = _Known(source, is_indexed, wait, *an.keys)
    registers = _registers(patterns, edges, new_edge)
    leading = _Leading(target, conjuncts.first, registers[0])
    lane_count = 1 + max((atom.lane for block in edge_blocks for atom in block.columns.atoms), default=-1)
    is_gate_lane = np.zeros(lane_count, bool)
    atoms, entries = _predicates(conjuncts, edge_blocks, wait_blocks, fr.entry_of, known, leading, gates, is_gate_lane)
    bits, found = fr_table(fr)
    life = np.full(wait_count, INT64_MIN, np.int64)
    _lives(edge_first, target, conjuncts.first, conjuncts.table, edge_count, wait, np.empty(count, np.int64), life)
    nodes = np.zeros((count + 1, len(Node)), np.int32)
    nodes[:, Node.EDGE_FIRST] = edge_first
    nodes[:, Node.SIGNATURE_FIRST] = fr.signature_first
    nodes[:count, Node.SLOT] = slot
    nodes[:count, Node.WAIT] = wait
    waits = np.zeros((wait_count + 1, len(Wait)), np.int32)
    waits[:, Wait.CONJUNCT_FIRST] = conjuncts.first[edge_count:]
    waits[:, Wait.AN_FIRST] = an.first
    waits[:wait_count, Wait.FINDING] = finding
    waits[:wait_count, Wait.KEY_LANE : Wait.KEY_VALUE_LANE + 1] = key
    waits[:wait_count, Wait.STAYS] = stays
    # The event of the last round is equal with the next one on what instances are found by, if both say so alike.
    slot_of_wait = np.zeros(wait_count, np.int32)
    waiting = np.flatnonzero(wait > 0)
    slot_of_wait[wait[waiting]] = slot[waiting]
    alike = (key[:, 1] == slot_of_wait) & (key[:, 0] == key[:, 2])
    waits[:wait_count, Wait.STEADY] = (key[:, 0] < 0) | (key[:, 1] < slot_of_wait) | alike
    table = np.zeros((edge_count + 1, len(Edge)), np.int32)
    table[:edge_count, Edge.TARGET] = target
    table[:, Edge.REGISTER_FIRST] = registers[0]
    return Automata(
        nodes=nodes,
        gates=gates,
        gate_lanes=np.flatnonzero(is_gate_lane).astype(np.int32),
        waits=waits,
        life=life,
        edges=table,
        registers=registers[1],
        conjuncts=conjuncts.table,
        atoms=atoms,
        programs=conjuncts.programs,
        code=Code(*programs.arrays(), *_parameters(patterns)),
        signatures=fr.signatures,
        signature_words=fr.signature_words,
        fr_bits=bits,
        fr_table=found,
        fr_entries=entries,
        an_entries=an.entries,
        an_lanes=an.lanes,
        an_mask=an.mask,
        ai_lanes=np.unique(key[key[:, 0] >= 0, 0]).astype(np.int32),
    )


def _waits(
    patterns: Sequence[PatternColumns], owners: Owners, edge_count: int
) -> tuple[list[ConjunctBlock], NDArray[np.int32], NDArray[np.int32]]:
    """The filter predicates of all waits, by which value of their own instances are found, and whether they stay."""
    blocks: list[ConjunctBlock] = []
    chosen = owners.first_of_wait[1:]
    key = np.full((len(chosen) + 1, 3), -1, np.int32)
    stays = np.zeros(len(chosen) + 1, np.int32)
    for number, pattern in enumerate(patterns):
        for place in range(1, len(pattern.nodes) - 1):
            ids = np.flatnonzero((owners.pattern[chosen] == number) & (owners.place[chosen] == place))
            if not ids.size:
                continue
            node = pattern.nodes[place]
            if node.key is not None:
                key[ids + 1] = node.key
            stays[ids + 1] = node.stays
            blocks += _conjunct_blocks(number, node.conjuncts, owners.row[chosen[ids]], edge_count + ids + 1)
    return blocks, key, stays


class _Conjuncts(NamedTuple):
    first: NDArray[np.int32]  # by owner
    table: Ints
    programs: NDArray[np.int32]
    of_block: list[Ints]


def _place_conjuncts(
    blocks: Sequence[ConjunctBlock], owner_count: int, patterns: Sequence[PatternColumns]
) -> _Conjuncts:
    """Conjuncts in order of their owners, with their programs beside them."""
    owners = np.concatenate([block.owners for block in blocks] or [np.empty(0, np.int64)])
    total = len(owners)
    first = first_of(owners, owner_count)
    place = places_of(owners, first)
    program_count = np.zeros(total, np.int64)
    table = np.empty((total + 1, len(Conjunct)), np.int64)
    table[:] = np.array([0, 0, -1, INT64_MIN, INT64_MAX, 0], np.int64)
    of_block = []
    begin = 0
    row_begin = np.cumsum([0, *(len(p.parameter_ints) for p in patterns)])
    for block in blocks:
        mine = place[begin : begin + len(block.rows)]
        begin += len(block.rows)
        of_block.append(mine)
        if block.columns.programs:
            program_count[mine] = len(block.columns.programs)
        for column, bound in ((Conjunct.LEAST, block.columns.least), (Conjunct.GREATEST, block.columns.greatest)):
            if bound is not None:
                _write_column(table, int(column), mine, block.rows, np.ascontiguousarray(bound))
        if patterns[block.pattern].parameter_ints.size:
            table[mine, Conjunct.PARAMETER_ROW] = row_begin[block.pattern] + block.rows
    program_first = np.concatenate([[0], np.cumsum(program_count)])
    programs = np.zeros(int(program_first[-1]), np.int32)
    for block, mine in zip(blocks, of_block, strict=True):
        for k, program in enumerate(block.columns.programs):
            programs[program_first[mine] + k] = program
    table[:, Conjunct.PROGRAM_FIRST] = program_first
    return _Conjuncts(first, table, programs, of_block)


class _Known(NamedTuple):
    """What an event that looks at an edge is known to satisfy already."""

    source: NDArray[np.int32]  # by edge
    is_indexed: NDArray[np.bool_]  # by node
    wait: NDArray[np.int32]  # by node
    lane: NDArray[np.int32]  # by wait
    value: Ints


class _Leading(NamedTuple):
    """Where edges lead, and where their conjuncts and the registers they set begin."""

    target: NDArray[np.int32]
    conjunct_first: NDArray[np.int32]
    register_first: NDArray[np.int32]


def _predicates(
    conjuncts: _Conjuncts,
    edge_blocks: Sequence[ConjunctBlock],
    wait_blocks: Sequence[ConjunctBlock],
    entry_of: Ints,
    known: _Known,
    leading: _Leading,
    gates: Words,
    is_gate_lane: NDArray[np.bool_],
) -> tuple[Ints, Ints]:
    """The atoms of filter predicates, and those of edges that their entries in the FR index have no place for; and
    these entries."""
    edge_places = conjuncts.of_block[: len(edge_blocks)]
    wait_places = conjuncts.of_block[len(edge_blocks) :]
    room = sum(_rest_max(b.columns, b.rows) for b in edge_blocks)
    room += sum(int(b.columns.table.counts[b.rows].sum()) for b in wait_blocks if b.columns.atoms)
    # Rows that nothing is written to take no memory.
    atoms = np.empty((room, 4), np.int64)
    entries = aligned(len(entry_of), len(Entry))
    used = 0
    for block, mine in zip(edge_blocks, edge_places, strict=True):
        columns = block.columns
        is_plain = not columns.programs and columns.least is None and columns.greatest is None
        used = write_entries(
            entries, gates, is_gate_lane, entry_of, mine, block.rows, block.owners, *known, *columns.table,
            conjuncts.table, atoms, used, is_plain, *leading,
        )  # fmt: skip
    for block, mine in zip(wait_blocks, wait_places, strict=True):
        if block.columns.atoms:
            table = block.columns.table
            used = _write_atoms(conjuncts.table, atoms, used, mine, block.rows, table.atoms, table.counts)
    return atoms[:used], entries


def _rest_max(columns: ConjunctColumns, rows: NDArray[np.int32]) -> int:
    """How many atoms there can be for which entries of the FR index have no place: they have two, for plain ranges."""
    if not columns.atoms:
        return 0
    placed = 0 if any(atom.negated for atom in columns.atoms) else 2
    return int(np.maximum(columns.table.counts[rows] - placed, 0).sum())


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


@kernel(allocates=True)
def _lives(edge_first, target, conjunct_first, conjuncts, edge_count, wait, node_life, life):
    """How long an instance may last at each node, and so in each wait, and still lead to a result.

    Edges lead to higher numbers.
    """
    for node in range(len(node_life) - 1, -1, -1):
        if wait[node] < 0:
            node_life[node] = INT64_MAX
            continue
        longest = np.int64(INT64_MIN)
        for edge in range(edge_first[node], edge_first[node + 1]):
            if target[edge] == node:
                continue
            for conjunct in range(conjunct_first[edge], conjunct_first[edge + 1]):
                longest = max(longest, min(conjuncts[conjunct, Conjunct.GREATEST], node_life[target[edge]]))
        allowed = np.int64(INT64_MIN)
        owner = edge_count + wait[node]
        for conjunct in range(conjunct_first[owner], conjunct_first[owner + 1]):
            allowed = max(allowed, conjuncts[conjunct, Conjunct.GREATEST])
        node_life[node] = min(longest, allowed)
        life[wait[node]] = max(life[wait[node]], node_life[node])


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

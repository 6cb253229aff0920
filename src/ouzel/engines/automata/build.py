"""Builds merged automata from columns with one row per query, so that 400,000 queries take a few array operations.

All queries of a template share one *pattern* of nodes and edges. They differ only in constants, which are columns. Two
nodes are merged if everything that leads to them is equal (CESAR, Definition 2). To find such nodes, what leads to a
node is encoded as 64-bit words, and the words are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.automata.columns import ConjunctColumns, Ints, PatternColumns, Words, mix, order_of
from ouzel.engines.automata.indexes import (
    FR_EDGES_MIN,
    ConjunctBlock,
    Indexed,
    an_index,
    find_ranges,
    find_words,
    first_of,
    index_of,
    places_of,
    write_entries,
)
from ouzel.engines.automata.tables import (
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
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN, Cube, Matrix, enlarged
from ouzel.kernels.jit import helper, kernel


class Owners(NamedTuple):
    """For each merged node: the query from which it is built (as pattern, place and row), and its wait.

    Nodes and waits are numbered from 1, so entry 0 belongs to node 1.
    """

    pattern: NDArray[np.int32]
    place: NDArray[np.int32]
    row: NDArray[np.int32]
    wait: NDArray[np.int32]  # -1: the node is final
    first_of_wait: NDArray[np.int32]  # by wait: the first place here with this wait

    @property
    def total(self) -> int:
        return int(self.row.size)


class MergedEdges(NamedTuple):
    """All edges of the merged automata, in blocks with one edge of a pattern each: their sources, their targets, and
    the queries (rows) from which they are built.
    """

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
            blocks.append(ConjunctBlock(pattern, columns, rows, owners).chosen(columns.enabled[rows]))
    return blocks


@kernel(allocates=True)
def _write_atoms(
    conjuncts: Matrix[np.int64],
    atoms: Matrix[np.int64],
    used: int,
    places: NDArray[np.int64],
    rows: NDArray[np.int32],
    known: Matrix[np.int32],
    table: Cube[np.int64],
    counts: NDArray[np.int32],
):
    """Write the atoms of conjuncts, from row `used` on, without those that the AN index has already looked up. Returns
    the row after the last one written.
    """
    for k in range(len(rows)):
        conjuncts[places[k], Conjunct.ATOM_FIRST] = used
        for atom in range(known[k, 0], counts[rows[k]]):
            if atom == known[k, 1]:
                continue
            code = table[rows[k], atom, 0]
            atoms[used, 0] = code >> 1
            atoms[used, 1] = code & 1
            atoms[used, 2] = table[rows[k], atom, 1]
            atoms[used, 3] = table[rows[k], atom, 2]
            used += 1
        conjuncts[places[k], Conjunct.ATOM_LAST] = used
    return used


@kernel(allocates=True)
def _write_column(
    table: Matrix[np.int64], column: int, places: NDArray[np.int64], rows: NDArray[np.int32], values: NDArray[np.int64]
):
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
    # Edges are sorted by source. Those of the start were sorted by the keys of the FR index, so that a bucket is
    # contiguous.
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
    finding = np.where(key[:, 0] >= 0, Finding.DYNAMIC, Finding.STATIC)
    is_indexed = np.diff(edge_first) >= FR_EDGES_MIN
    # Conjuncts of edges come first, in the order of their edges, and so of their nodes.
    nodes_of = [source[block.owners] for block in edge_blocks]
    fr = index_of(edge_blocks, conjuncts.of_block[: len(edge_blocks)], nodes_of, is_indexed)
    gates = aligned(count, 2).view(np.uint64)
    gates[:] = 0
    known = _Known(source, is_indexed, wait, *an.keys)
    looked_up = [an.known[block.owners - edge_count] for block in wait_blocks]
    registers = _registers(patterns, edges, new_edge)
    leading = _Leading(target, conjuncts.first, registers[0])
    lane_count = 1 + max((atom.lane for block in edge_blocks for atom in block.columns.atoms), default=-1)
    is_gate_lane = np.zeros(lane_count, bool)
    atoms, entries = _predicates(
        conjuncts, edge_blocks, wait_blocks, looked_up, fr, known, leading, gates, is_gate_lane
    )
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
    # The event of the last iteration is equal to the next one on the value by which instances are found, if both
    # predicates say so.
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
        fr=fr.index,
        fr_entries=entries,
        an=an.index,
        an_waits=an.waits,
        an_entries=an.entries,
        ai_lanes=np.unique(key[key[:, 0] >= 0, 0]).astype(np.int32),
    )


def _waits(
    patterns: Sequence[PatternColumns], owners: Owners, edge_count: int
) -> tuple[list[ConjunctBlock], NDArray[np.int32], NDArray[np.int32]]:
    """By wait: (blocks of conjuncts of its filter predicate, the value by which its instances are found, whether they
    stay).
    """
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
    """All conjuncts in the order of their edges and waits, with their programs."""
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
    """What is already known about an event that arrives at an edge: the wait it has passed, and the value of one of its
    lanes.
    """

    source: NDArray[np.int32]  # by edge
    is_indexed: NDArray[np.bool_]  # by node
    wait: NDArray[np.int32]  # by node
    lane: NDArray[np.int32]  # by wait
    value: Ints


class _Leading(NamedTuple):
    """By edge: its target, its first conjunct, and the first register that it sets."""

    target: NDArray[np.int32]
    conjunct_first: NDArray[np.int32]
    register_first: NDArray[np.int32]


def _predicates(
    conjuncts: _Conjuncts,
    edge_blocks: Sequence[ConjunctBlock],
    wait_blocks: Sequence[ConjunctBlock],
    looked_up: Sequence[NDArray[np.int32]],
    fr: Indexed,
    known: _Known,
    leading: _Leading,
    gates: Words,
    is_gate_lane: NDArray[np.bool_],
) -> tuple[Ints, Ints]:
    """(atoms, entries): the entries of the FR index, and atoms of filter predicates and of those edges whose tests do
    not all fit into an entry.
    """
    edge_places = conjuncts.of_block[: len(edge_blocks)]
    wait_places = conjuncts.of_block[len(edge_blocks) :]
    room = sum(_rest_max(b.columns, b.rows) for b in edge_blocks)
    room += sum(int(b.columns.table.counts[b.rows].sum()) for b in wait_blocks if b.columns.atoms)
    # Rows that are never written take no memory.
    atoms = np.empty((room, 4), np.int64)
    entries = aligned(len(fr.entry_of), len(Entry))
    used = 0
    for block, mine in zip(edge_blocks, edge_places, strict=True):
        columns = block.columns
        is_plain = not columns.programs and columns.least is None and columns.greatest is None
        used = write_entries(
            entries, gates, is_gate_lane, fr.entry_of, fr.ranged, mine, block.rows, block.owners, *known,
            *columns.table, conjuncts.table, atoms, used, is_plain, *leading,
        )  # fmt: skip
    for block, mine, known_atoms in zip(wait_blocks, wait_places, looked_up, strict=True):
        if block.columns.atoms:
            table = block.columns.table
            used = _write_atoms(conjuncts.table, atoms, used, mine, block.rows, known_atoms, table.atoms, table.counts)
    return atoms[:used], entries


def _rest_max(columns: ConjunctColumns, rows: NDArray[np.int32]) -> int:
    """An upper bound of the atoms that do not fit into entries of the FR index. An entry has two, if no range is
    negated.
    """
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
def _lives(
    edge_first: NDArray[np.int32],
    target: NDArray[np.int32],
    conjunct_first: NDArray[np.int32],
    conjuncts: Matrix[np.int64],
    edge_count: int,
    wait: NDArray[np.int32],
    node_life: NDArray[np.int64],
    life: NDArray[np.int64],
):
    """The longest time that an instance may still take to a result: for each node, and so for each wait.

    Every edge leads to a node with a higher number.
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


# The bits of a range's low end that order nodes whose keys have the same hash.
_LOW_BITS = 44
_SEED = np.uint64(0x243F6A8885A308D3)
# The number of rules that are encoded at once.
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
def _append(words: NDArray[np.int64], last: NDArray[np.int64], values: NDArray[np.int64]):
    """Append one value to the words of each row. If `values` has a single value, every row gets that one."""
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
    words: NDArray[np.int64],
    last: NDArray[np.int64],
    begin: int,
    enabled: NDArray[np.bool_],
    atoms: Cube[np.int64],
    counts: NDArray[np.int32],
    programs: NDArray[np.int64],
    ints: Matrix[np.int64],
    floats: Matrix[np.int64],
    nulls: Matrix[np.uint8],
    least: NDArray[np.int64],
    greatest: NDArray[np.int64],
):
    """Append a conjunct of a predicate to the words of each row: its atoms in a fixed order, its programs with the
    parameters that they read, and its bounds of DUR.

    Every list begins with its length, so that different conjuncts have different words.
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
            # The order of atoms has no meaning.
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
def _append_all_parameters(
    words: NDArray[np.int64],
    last: NDArray[np.int64],
    begin: int,
    ints: Matrix[np.int64],
    floats: Matrix[np.int64],
    nulls: Matrix[np.uint8],
):
    for k in range(len(last)):
        last[k] = _append_parameters(words, last[k], begin + k, ints, floats, nulls)


class _Page:
    """Encodes what leads to one place of a pattern as words, for a range of its queries."""

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
    """An upper bound of the number of words that some conjuncts take."""
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
def _number(
    words: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    known: NDArray[np.int64],
    ends: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    table: NDArray[np.int64],
    count: int,
    bits: np.uint64,
    numbers: NDArray[np.int64],
    fresh: NDArray[np.int64],
):
    """Give each rule a number, the same for equal rules. Returns the number of different rules so far; `fresh` gets the
    rows whose rules are new.
    """
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
def _put_again(hashes: NDArray[np.uint64], count: int, table: NDArray[np.int64]):
    mask = np.uint64(len(table) - 1)
    for number in range(count):
        place = hashes[number] & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = number


class _Rules:
    """All different rules so far, with their numbers. They are found by a hash and then compared word by word."""

    def __init__(self) -> None:
        self.count = 0
        self._words = np.empty(1024, np.int64)
        self._ends = np.zeros(65, np.int64)
        self._hashes = np.empty(64, np.uint64)
        self._table = np.full(256, -1, np.int64)

    def number(self, page: _Page) -> tuple[Ints, Ints]:
        """The number of each rule of a page, and the rows whose rules are new."""
        rows = len(page.first)
        before = self.count
        room = int(self._ends[before]) + int((page.last - page.first).sum())
        self._words = _grown(self._words, room)
        self._ends = _grown(self._ends, before + rows + 1)
        self._hashes = _grown(self._hashes, before + rows)
        if len(self._table) < 2 * (before + rows):
            self._table = np.full(1 << (2 * (before + rows)).bit_length(), -1, np.int64)
            _put_again(self._hashes, before, self._table)
        numbers, fresh = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.count = _number(
            page.words, page.first, page.last, self._words, self._ends, self._hashes, self._table, before,
            np.uint64(HASH_BITS), numbers, fresh,
        )  # fmt: skip
        return numbers, fresh[: self.count - before]


def _grown(array: NDArray, size: int) -> NDArray:  # type: ignore[type-arg]
    return array if len(array) >= size else enlarged(array, max(size, 2 * len(array)), 0)


class _Numbers(NamedTuple):
    """For one place of a pattern: the numbers of the rule and of the wait of each query, and the rows whose rules are
    new.
    """

    rule: Ints
    wait: Ints
    fresh: Ints


def _numbers(pattern: PatternColumns, place: int, node_of: NDArray[np.int32], rules: _Rules, waits: _Rules) -> _Numbers:
    """Number what leads to a place, and its wait, for each query. The nodes of earlier places must have numbers."""
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
def _in_order_of_nodes(
    given: NDArray[np.int64], numbers: NDArray[np.int32], wait: NDArray[np.int32], firsts: NDArray[np.int32]
):
    """Renumber waits from 1 in the order of nodes; -1 if a node has none. Returns the number of waits, plus one for the
    start.
    """
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
    """(node_of, owners): the node of each query at each place, and for each node one query from which it is built.

    Nodes are numbered place by place from the start, so that every edge leads to a higher number. Nodes that one event
    is likely to reach together get adjacent numbers, so that memory is read in sequence: nodes whose edges have the
    same key in the FR index, and children of one node.
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
    """A value by which nodes are ordered. It is equal, or near, for nodes that one event is likely to reach together:
    it is the node before or, after the start, a key of the FR index.
    """
    entering = next(edge for edge in pattern.edges if edge.target == place)
    if entering.source:
        near: Words = node_of[entering.source, rows].astype(np.uint64) << np.uint64(32)
        return near
    words = np.zeros(len(rows), np.uint64)
    if entering.conjuncts:
        unread, values = np.zeros(len(rows), np.int64), np.zeros((len(rows), 2), np.int64)
        start = np.zeros(len(rows), np.int32)
        chosen, table = rows.astype(np.int32), entering.conjuncts[0].table
        find_words(words, unread, values, start, chosen, *table)
        if entering.conjuncts[0].atoms:
            # An event reaches nodes whose ranges begin near each other.
            bounds, atoms = np.zeros((len(rows), 2), np.int64), np.empty(len(rows), np.int32)
            find_ranges(atoms, bounds, unread, chosen, *table)
            low = bounds[:, 0].view(np.uint64) ^ np.uint64(1 << 63)
            words = words & np.uint64(~((1 << _LOW_BITS) - 1) % 2**64) | low >> np.uint64(64 - _LOW_BITS)
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

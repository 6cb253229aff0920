"""The workload of SASE+ section 6: stock tickers, the template with Table 1, and the kernel fed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ouzel.engines.kleene.kernels import GraphKernel
from ouzel.engines.kleene.lowering import RunLowered, lower_runs
from ouzel.engines.kleene.matches import Expanded, expand_matches
from ouzel.engines.kleene.operator import run_tables
from ouzel.engines.kleene.plan import MERGE_RUNS, RunKernel, RunPlan
from ouzel.engines.kleene.runs import scan
from ouzel.engines.kleene.staging import RunStager
from ouzel.engines.kleene.state import (
    Counter,
    RunOutput,
    RunState,
    Status,
    new_run_output,
    new_run_state,
    number_events,
    reserve,
)
from ouzel.engines.kleene.tables import RunEvents, RunTables, new_events
from ouzel.prepared import as_queries
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.program import make_program
from ouzel.runtime.session import Session
from tests.oracle import oracle
from tests.oracle.events import Event

SYMBOLS = 2
PRICES = 1_000
VOLUMES = 1_000
INCREASE = 0.7
NO_LIMITS = Limits(max_partial_matches=2**40, max_matches_per_timestamp=2**40, max_buffered_events=2**40)

PREDICATES = {
    "p1": "",
    "p2": "AND a[i].price > a[i-1].price ",
    "p3": "AND a[i].price > min(a[..i-1].price) ",
}
STRATEGIES = {"s2": "partition_contiguity", "s3": "skip_till_next_match"}
# The paper leaves p1s2 out from its second experiment on: it is p1s3.
NAMES = ("p1s3", "p2s2", "p2s3", "p3s2", "p3s3")


def stock_events(events: int, increase: float = INCREASE, seed: int = 1) -> pa.Table:
    """Ticks of two symbols. A symbol's first price is drawn from 1 to 1,000; then it goes up by one with probability
    `increase`, and as likely down by one as it stays. So a price that starts a run comes about every 900 ticks of a
    symbol, some of them twice, and matches are as long as the paper says; a price that were kept below 1,000 would
    leave half of all runs without a way on.

    >>> stock_events(3).column_names
    ['type', 'ts', 'symbol', 'price', 'volume']
    """
    rng = np.random.default_rng(seed)
    symbol = rng.integers(1, SYMBOLS + 1, events)
    down = (1 - increase) / 2
    step = rng.choice(np.array([1, -1, 0]), events, p=[increase, down, 1 - increase - down])
    price = np.empty(events, np.int64)
    for number in range(1, SYMBOLS + 1):
        own = symbol == number
        price[own] = rng.integers(1, PRICES + 1) + np.cumsum(step[own])
    return pa.table(
        {
            "type": pa.DictionaryArray.from_arrays(np.zeros(events, np.int32), ["Stock"]).cast(pa.string()),
            "ts": np.arange(events, dtype=np.int64),
            "symbol": symbol,
            "price": price,
            "volume": rng.integers(1, VOLUMES + 1, events),
        }
    )


def template(name: str, window: int, *, output: str = "ALL", begins: str = "a[1].price % 500 = 0") -> str:
    """The paper's query p1s2 … p3s3, or with a third component p3*s2, p3*s3.

    >>> template("p2s3", 500)[:45]
    'PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_t'
    """
    extended = "*" in name
    name = name.replace("*", "")
    third = ", Stock c" if extended else ""
    last = "AND c.price > a[1].price AND c.price < a[a.LEN].price " if extended else ""
    return (
        f"PATTERN SEQ(Stock+ a[], Stock b{third}) WHERE {STRATEGIES[name[2:]]} "
        f"{{ [symbol] AND {begins} {PREDICATES[name[:2]]}AND b.volume < 150 {last}}} WITHIN {window} EVENTS "
        f"OUTPUT {output}"
    )


@dataclass(frozen=True, slots=True)
class Matching:
    """Matching without writing out: the run kernel on events that are staged and numbered."""

    plan: RunPlan
    lowered: RunLowered
    layout: Layout
    tables: RunTables
    events: RunEvents

    def staged(self, table: pa.Table) -> Matching:
        """The same with other events, made ready as the engine does it."""
        stager = RunStager(self.plan, self.lowered, self.layout)
        _, block = stager.stage(table, table.column("ts").to_numpy())
        staged = block.events
        position = np.zeros(block.count, np.int64)
        number_events(staged.key, np.zeros(stager.keys.count, np.int64), position)
        relevant = np.flatnonzero(staged.roles)
        reserved = self.tables.reserved
        events = new_events(
            self.tables,
            reserved + len(relevant),
            int_lanes=self.lowered.int_rows,
            float_lanes=self.lowered.float_rows,
        )
        behind = slice(reserved, None)
        for name in ("end", "key", "roles"):
            getattr(events, name)[behind] = getattr(staged, name)[relevant]
        events.position[behind] = position[relevant]
        for name in ("int_lanes", "float_lanes", "lane_flags"):
            getattr(events, name)[:, behind] = getattr(staged, name)[:, relevant]
        return replace(self, events=events)

    def run(self) -> RunState:
        """Read everything; what is found is counted and let go, as arrays of nodes."""
        for state, _ in self.rounds():
            last = state
        return last

    def rounds(self) -> Iterator[tuple[RunState, RunOutput]]:
        """State and output after each batch; the output is empty again before the next one."""
        slots = self.lowered.number_slots
        state = new_run_state(self.tables, len(slots), 1, 1, number_slots=slots)
        state = reserve(self.tables, state, len(self.events.end), SYMBOLS + 1)
        output = new_run_output(1 << 16)
        used = len(self.events.end)
        for first in range(self.tables.reserved, used, BATCH):
            progress = scan(self.tables, state, self.events, first, min(first + BATCH, used), output)
            assert progress.status is Status.DONE
            state, output = progress.state, progress.output
            yield state, output
            output.written[0] = 0
            state.counters[Counter.CHOSEN] = 0

    def written_out(self) -> tuple[int, int]:
        """(matches, events in them): everything, matches constructed batch by batch."""
        matches = length = 0
        for state, output in self.rounds():
            found = expand_matches(self.tables, state, output)
            assert isinstance(found, Expanded)
            matches += len(found.lengths)
            length += len(found.slots)
        return matches, length


# Long enough for calls to cost little; matches are written out, or let go, so often, and until then keep their nodes.
BATCH = 16_384


def matching(text: str, table: pa.Table, *, merge: bool = True) -> Matching:
    """The kernel with a query's tables and a table's events."""
    off = () if merge else (MERGE_RUNS,)
    program = make_program(as_queries(text), table.schema, time="ts", type="type", rules_off=off, limits=NO_LIMITS)
    (plan,) = program.plans().values()
    assert isinstance(plan, RunPlan)
    lowered = lower_runs(plan)
    tables = run_tables(plan, lowered, NO_LIMITS)
    return Matching(plan, lowered, program.layout, tables, new_events(tables, 0)).staged(table)


# ── Compressed answers ─────────────────────────────────────────────────────────────────────────────

# Where graphs are made of all rows, a completing event comes so rarely that what a row costs, which grows with its
# graph, is no more than its share.
COMPLETED_EVERY = 2_000
# Where only the shared graph is kept up to date, every third event completes matches.
COMPLETING = 1 / 3


@dataclass(frozen=True, slots=True)
class CompressedWorld:
    """A stream of A and B, and a query for all choices of A before each B."""

    table: pa.Table
    text: str
    window: int

    def prepared(self) -> tuple[RunTables, tuple[int, ...], RunEvents]:
        """(tables, number_slots, events): what the graph kernel is made of, and what it reads."""
        program = make_program(as_queries(self.text), self.table.schema, time="ts", type="type", limits=NO_LIMITS)
        (plan,) = program.plans().values()
        assert isinstance(plan, RunPlan) and plan.kernel is RunKernel.GRAPH
        lowered = lower_runs(plan)
        tables = run_tables(plan, lowered, NO_LIMITS)
        stager = RunStager(plan, lowered, program.layout)
        _, block = stager.stage(self.table, self.table.column("ts").to_numpy())
        events = new_events(tables, tables.reserved + block.count)
        events.end[tables.reserved :] = block.events.end
        events.key[tables.reserved :] = block.events.key
        events.roles[tables.reserved :] = block.events.roles
        return tables, lowered.number_slots, events

    def update(self) -> int:
        """From an Arrow table to the graphs of all rows, without their counts; how many rows."""
        tables, number_slots, events = self.prepared()
        kernel = GraphKernel(tables, number_slots, Limits(), listed=False)
        rows = 0
        for first in range(tables.reserved, len(events.end), BATCH):
            kernel.read(events, first, min(first + BATCH, len(events.end)), 1)
            found = kernel.take_compressed(events)
            rows += 0 if found is None else len(found.ends)
        return rows


def shared_graph(tables: RunTables, number_slots: tuple[int, ...], events: RunEvents) -> int:
    """The graph that all rows share, each row being a root of it, from events that are ready; how many cells."""
    kernel = GraphKernel(tables, number_slots, Limits(), listed=False)
    kernel.read(events, tables.reserved, len(events.end), 1)
    return kernel.statistics["cells"]


def compressed_world(events: int, window: int, *, dense: bool = False) -> CompressedWorld:
    """Every event is an A or a B: with `dense` a third of them, by chance, complete matches."""
    number = np.arange(events, dtype=np.int64)
    completes = number % COMPLETED_EVERY == COMPLETED_EVERY - 1
    if dense:
        completes = np.random.default_rng(3).random(events) < COMPLETING
    types = pa.DictionaryArray.from_arrays(completes.astype(np.int32), ["A", "B"]).cast(pa.string())
    table = pa.table({"type": types, "ts": number})
    return CompressedWorld(table, f"PATTERN SEQ(A+ a[], B b) WITHIN {window} OUTPUT COMPRESSED", window)


def expected_counts(world: CompressedWorld) -> list[int]:
    """Any choice of at least one of the events of A in the window before each B, where there is one."""
    is_a = np.array(world.table.column("type").to_pylist()) == "A"
    before = np.concatenate([[0], np.cumsum(is_a)])
    rows = np.flatnonzero(~is_a)
    counts = before[rows] - before[np.maximum(rows - world.window + 1, 0)]
    return [2 ** int(count) - 1 for count in counts if count]


# ── Answers ────────────────────────────────────────────────────────────────────────────────────────


def answer(text: str, table: pa.Table, *, rules_off: tuple[str, ...] = ()) -> pa.Table:
    """As `ouzel.match`, with rules off."""
    program = make_program(
        as_queries(text), table.schema, time="ts", type="type", rules_off=rules_off, limits=NO_LIMITS
    )
    session = Session(program)
    session.push(table, zero_copy=True)
    return session.finish()["query"]


def check_sample(text: str, *, rules_off: tuple[str, ...] = (), events: int = 160) -> int:
    """Compare the engine with the oracle on a short stream; gives the number of matches they agree on."""
    table = stock_events(events, seed=17)
    happened = [Event(row["type"], row["ts"], row["ts"], row) for row in table.to_pylist()]
    ((_, expected),) = oracle.answer(text, happened).items()
    found = answer(text, table, rules_off=rules_off).to_pylist()
    assert sorted(map(repr, found)) == sorted(repr(dict(result.row)) for result in expected), "the oracle disagrees"
    return len(found)

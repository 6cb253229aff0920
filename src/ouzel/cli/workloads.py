"""`ouzel generate` and `ouzel bench`: seeded streams, and how fast a query is on them or on one's own events."""

from __future__ import annotations

import statistics
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.table import Table
from rich.text import Text

import ouzel
from ouzel.cli.console import out, speaks_clearly
from ouzel.cli.insights import events_of
from ouzel.cli.options import ColumnOptions, OneQueryOptions, takes_groups
from ouzel.cli.results import Format, Results
from ouzel.errors import InputError, OuzelError


@dataclass(frozen=True)
class Workload:
    """A stream that can be made from a number of events and a seed, and a query that is at home on it."""

    paper: str
    make: Callable[[int, int], pa.Table]
    query: str


def _lossy(events: int, seed: int) -> pa.Table:
    # An item leaves four readings, more or less.
    made = ouzel.datasets.lossy_shop(max(1, events // 3), seed=seed).events
    return made.slice(0, events)


WORKLOADS = {
    "shop": Workload(
        "the demo shop: readings of a day with known thefts (SASE 2.2)",
        lambda events, seed: ouzel.datasets.shop_day(events, seed=seed).events,
        "PATTERN SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN 12 hours\n"
        "RETURN Theft(x.tag_id AS tag, x.shelf_id AS shelf, z.time AS left_at)",
    ),
    "medicine": Workload(
        "doses of medicine with known overdoses (SASE 2.3)",
        lambda events, seed: ouzel.datasets.medicine(events, seed=seed).events,
        "PATTERN SEQ(MedicineTaken x, MedicineTaken y)\n"
        "WHERE [name] AND [medicine] AND x.amount + y.amount > 1000 WITHIN 4 hours\n"
        "RETURN Overdose(x.name AS patient, x.amount + y.amount AS amount)",
    ),
    "sase": Workload(
        "typed events with five attributes (SASE 5.1)",
        lambda events, seed: ouzel.datasets.sase_events(events, seed=seed),
        "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN 10000\nRETURN Found(a.ts AS a, b.ts AS b, c.ts AS c)",
    ),
    "stocks": Workload(
        "ticks of two stocks (SASE+ 6.1)",
        lambda events, seed: ouzel.datasets.stock_ticks(events, seed=seed),
        "PATTERN SEQ(Stock+ a[], Stock b)\n"
        "WHERE skip_till_next_match(a[], b) {\n"
        "  [symbol] AND a[1].price % 500 = 0 AND a[i].price > a[i-1].price AND b.volume < 150 }\n"
        "WITHIN 500 RETURN Rise(a[1].price AS from_price, a.LEN AS events, b.price AS to_price)",
    ),
    "trades": Workload(
        "trades whose type is the ticker (A-Seq 6.1)",
        lambda events, seed: ouzel.datasets.stock_trades(events, seed=seed),
        "PATTERN SEQ(DELL, IPIX, AMAT) GROUP BY trader AGG COUNT WITHIN 1 s",
    ),
    "technical": Workload(
        "events with discrete and continuous attributes (CESAR 5.1)",
        lambda events, seed: ouzel.datasets.technical_events(events, seed=seed),
        "PATTERN SEQ(Event a, Event b, Event c)\n"
        "WHERE skip_till_next_match(a, b, c) { [d0] AND b.c0 > a.c0 AND c.c0 > b.c0 } WITHIN 200\n"
        "RETURN Found(a.ts AS a, b.ts AS b, c.ts AS c)",
    ),
    "lossy-shop": Workload(
        "a shop whose readers lose readings (AYAC)",
        _lossy,
        "PATTERN SEQ(Shelf a, Aisle b, !(Counter n), Exit c) WHERE [tag] WITHIN 7200 RETURN Theft(c.tag AS tag)",
    ),
}


def _names(incomplete: str) -> list[tuple[str, str]]:
    return [(name, workload.paper) for name, workload in WORKLOADS.items() if name.startswith(incomplete)]


WorkloadArgument = Annotated[
    str | None,
    typer.Argument(metavar="WORKLOAD", help="One of " + ", ".join(WORKLOADS) + ".", autocompletion=_names),
]
EventsOption = Annotated[int, typer.Option("--events", "-n", min=0, help="How many events.")]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same events.")]


@speaks_clearly
def generate_command(
    workload: WorkloadArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A Parquet, CSV, JSON Lines or Arrow file.")
    ] = None,
    format: Annotated[Format | None, typer.Option("--format", "-f", help="By default what the ending says.")] = None,
    events: EventsOption = 100_000,
    seed: SeedOption = 0,
    query: Annotated[
        bool, typer.Option("--query", help="Print a query that is at home on these events, and make none.")
    ] = False,
) -> None:
    """Make the events of a paper's experiments or of the demo shop. Without WORKLOAD, list them.

    \b
    Examples:
      ouzel generate shop --output readings.parquet --events 1000000 --seed 7
      ouzel generate shop --query > theft.query
      ouzel generate stocks --format jsonl --events 20
    """
    if workload is None:
        _list_workloads()
        return
    chosen = _workload(workload)
    if query:
        out().print(chosen.query)
        return
    made = _made(workload, events, seed)
    with Results({workload: made.schema}, output, format) as results:
        results.write({workload: made})
    if output is not None:
        out(stderr=True).print(f"{made.num_rows:,} events written to {output}", style="dim")


@speaks_clearly
@takes_groups
def bench_command(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|QUERY",
            help="A workload of `ouzel generate`, or a query with --input.",
            autocompletion=_names,
        ),
    ],
    input: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="PATH", help="One's own events. Repeatable.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How many measured runs, after one to warm up.")] = 5,
    events: EventsOption = 1_000_000,
    seed: SeedOption = 0,
    *,
    asked: OneQueryOptions,
    layout: ColumnOptions,
) -> None:
    """Measure how fast a query is, on a workload or on one's own events: from an Arrow table to one, in memory.

    \b
    Examples:
      ouzel bench shop
      ouzel bench theft.query --input readings.parquet --runs 3
    """
    if input:
        made = asked.one(workload)
        table = events_of(input)
        if isinstance(table, dict):
            raise InputError("bench takes files with all event types, not TYPE=PATH")
    else:
        if workload not in WORKLOADS:
            raise InputError(
                f"'{workload}' is no workload ({', '.join(WORKLOADS)}); a query of one's own needs --input"
            )
        made, table = ouzel.query(WORKLOADS[workload].query), _made(workload, events, seed)
    wall, cpu, matches = [], [], 0
    for run in range(runs + 1):
        began, worked = clock.perf_counter(), clock.process_time()
        matches = ouzel.match(table, made, **layout.as_arguments()).num_rows
        if run:
            wall.append(clock.perf_counter() - began)
            cpu.append(clock.process_time() - worked)
    typical = statistics.median(wall)
    out().print(
        f"{table.num_rows:,} events, {matches:,} rows found, median of {runs} run{'s' if runs > 1 else ''}:\n"
        f"  {typical:.3f} s elapsed, {table.num_rows / max(typical, 1e-9):,.0f} events/s\n"
        f"  {statistics.median(cpu):.3f} s of CPU; fastest run {min(wall):.3f} s, slowest {max(wall):.3f} s"
    )


def _list_workloads() -> None:
    shown = Table("workload", "events", box=None)
    for name, workload in WORKLOADS.items():
        shown.add_row(Text(name, "cyan"), workload.paper)
    console = out()
    console.print(shown)
    console.print("\nouzel generate WORKLOAD --output FILE makes one; --query prints a query for it", style="dim")


def _workload(name: str) -> Workload:
    if name not in WORKLOADS:
        raise InputError(f"there is no workload '{name}'; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def _made(name: str, events: int, seed: int) -> pa.Table:
    try:
        return _workload(name).make(events, seed)
    except ValueError as error:
        raise OuzelError(str(error)) from None

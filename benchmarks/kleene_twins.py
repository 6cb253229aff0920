"""NFA^b in plain Python, twice: all runs at once (SASE+ 5.2.1, with merging 5.2.2), and backtracking (5.2.3).

Both know any predicates as functions, as the kernel knows them as tables, and both work on one partition's events at
a time of the template's pattern: Kleene a[], then b, and perhaps c. A node of the arena is [event, parent, others].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa


class Tick(NamedTuple):
    """An event with its position in its partition."""

    symbol: int
    price: int
    volume: int
    position: int


class Run:
    """A run with its computation state: the first price, the last and the least."""

    __slots__ = ("first", "last", "least", "node", "place", "since")

    def __init__(self, place: int, since: int, first: int, last: int, least: int, node: list[Any]) -> None:
        self.place = place
        self.since = since
        self.first = first
        self.last = last
        self.least = least
        self.node = node


@dataclass(frozen=True, slots=True)
class Template:
    """A query of the template: what may start a run, be taken, or begin the places behind a[]."""

    window: int
    contiguous: bool
    starts: Callable[[Tick], bool]
    takes: Callable[[Run, Tick], bool]
    begins: tuple[Callable[[Run, Tick], bool], ...]
    # What of a run at a[] decides its future.
    future: Callable[[Run], Any]


_TAKES: dict[str, Callable[[Run, Tick], bool]] = {
    "p1": lambda run, tick: True,
    "p2": lambda run, tick: tick.price > run.last,
    "p3": lambda run, tick: tick.price > run.least,
}
_FUTURES: dict[str, Callable[[Run], Any]] = {
    "p1": lambda run: None,
    "p2": lambda run: run.last,
    "p3": lambda run: run.least,
}


def template_of(name: str, window: int) -> Template:
    """The same query as `kleene_worlds.template`."""
    begins: tuple[Callable[[Run, Tick], bool], ...] = (lambda run, tick: tick.volume < 150,)
    if "*" in name:
        begins = (*begins, lambda run, tick: run.first < tick.price < run.last)
    name = name.replace("*", "")
    takes, future = _TAKES[name[:2]], _FUTURES[name[:2]]
    return Template(window, name[2:] == "s2", lambda tick: tick.price % 500 == 0, takes, begins, future)


def ticks_of(table: pa.Table) -> list[Tick]:
    """Ready-made events in stream order."""
    columns = (table.column(name).to_pylist() for name in ("symbol", "price", "volume"))
    counts: dict[int, int] = {}
    found = []
    for symbol, price, volume in zip(*columns, strict=True):
        position = counts.get(symbol, 0)
        counts[symbol] = position + 1
        found.append(Tick(symbol, price, volume, position))
    return found


@dataclass(slots=True)
class Tally:
    """What a twin did."""

    matches: int = 0
    length: int = 0  # of all matches together
    started: int = 0
    merged: int = 0  # runs that were joined to another one
    run_steps: int = 0  # runs that were shown an event
    reread: int = 0  # events that were read again


def all_runs(
    ticks: Iterable[Tick],
    query: Template,
    *,
    merge: bool = False,
    write_out: bool = False,
    non_overlapping: bool = False,
) -> Tally:
    """Show every event to every run of its partition."""
    tally = Tally()
    runs_of: dict[int, list[Run]] = {}
    ended: dict[int, int] = {}
    last_place = len(query.begins)
    for tick in ticks:
        oldest = tick.position - query.window + 1
        kept: list[Run] = []
        moved: dict[Any, Run] = {}
        done: list[Run] = []
        for run in runs_of.get(tick.symbol, ()):
            tally.run_steps += 1
            if run.since < oldest or (query.contiguous and run.node[0].position != tick.position - 1):
                continue
            taken = run.place == 0 and query.takes(run, tick)
            begun = query.begins[run.place](run, tick)
            if begun:
                place = run.place + 1
                after = Run(place, run.since, run.first, run.last, run.least, [tick, run.node, None])
                if place == last_place:
                    done.append(after)
                else:
                    kept.append(after)
            if taken:
                node = [tick, run.node, None]
                after = Run(0, run.since, run.first, tick.price, min(run.least, tick.price), node)
                future = query.future(after) if merge else len(moved)
                same = moved.get(future)
                if same is None:
                    moved[future] = after
                else:
                    node[2] = same.node[2]
                    same.node[2] = node
                    same.since = max(same.since, after.since)
                    tally.merged += 1
            elif not query.contiguous and not (run.place > 0 and begun):
                kept.append(run)
        kept += moved.values()
        if query.starts(tick):
            tally.started += 1
            kept.append(Run(0, tick.position, tick.price, tick.price, tick.price, [tick, None, None]))
        if done and non_overlapping:
            best = min(done, key=lambda run: run.since)
            if best.since > ended.get(tick.symbol, -1):
                tally.matches += 1
                ended[tick.symbol] = tick.position
                kept = [run for run in kept if run.since > tick.position]
        elif merge:
            tally.matches += bool(done)
        else:
            tally.matches += len(done)
            if write_out:
                for run in done:
                    tally.length += len(_events(run.node))
        runs_of[tick.symbol] = kept
    return tally


def _events(node: list[Any] | None) -> list[Tick]:
    found = []
    while node is not None:
        found.append(node[0])
        node = node[1]
    return found[::-1]


def backtrack(ticks: Iterable[Tick], query: Template, *, non_overlapping: bool = False) -> Tally:
    """One run of a partition at a time; what it might have done otherwise is put off, and tried when it has ended.

    A run proceeds first, as the paper's singleton does, and reads the partition's buffered events from where it was
    put off. Without overlaps the first match of the oldest start is taken.
    """
    tally = Tally()
    partitions: dict[int, list[Tick]] = {}
    for tick in ticks:
        partitions.setdefault(tick.symbol, []).append(tick)
    for buffer in partitions.values():
        free_from = 0
        furthest = 0
        for begin, first in enumerate(buffer):
            if begin < free_from or not query.starts(first):
                continue
            tally.started += 1
            start = Run(0, begin, first.price, first.price, first.price, [first, None, None])
            for end, furthest_read in _matches_from(buffer, query, start, furthest, tally):
                furthest = max(furthest, furthest_read)
                tally.matches += 1
                if non_overlapping:
                    free_from = end + 1
                    break
    return tally


def _matches_from(
    buffer: list[Tick], query: Template, start: Run, furthest: int, tally: Tally
) -> Iterator[tuple[int, int]]:
    """(position of the end, the furthest position read) of the matches of one start, by depth-first search."""
    put_off = [(start, start.since + 1)]
    stop = min(len(buffer), start.since + query.window)
    while put_off:
        run, position = put_off.pop()
        while position < stop:
            tick = buffer[position]
            tally.run_steps += 1
            if position < furthest:
                tally.reread += 1
            furthest = max(furthest, position)
            taken = run.place == 0 and query.takes(run, tick)
            begun = query.begins[run.place](run, tick)
            position += 1
            if begun:
                if taken:
                    node = [tick, run.node, None]
                    put_off.append(
                        (Run(0, run.since, run.first, tick.price, min(run.least, tick.price), node), position)
                    )
                elif run.place == 0 and not query.contiguous:
                    put_off.append((run, position))
                run = Run(run.place + 1, run.since, run.first, run.last, run.least, [tick, run.node, None])
                if run.place == len(query.begins):
                    yield position - 1, furthest
                    break
            elif taken:
                run = Run(0, run.since, run.first, tick.price, min(run.least, tick.price), [tick, run.node, None])
            elif query.contiguous:
                break

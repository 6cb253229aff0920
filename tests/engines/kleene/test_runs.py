"""The run and graph kernels equal a naive twin: SEQ(A+ a[], B b) where a[i].x > a[i-1].x and b.x < a[1].x."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from ouzel.engines.kleene.graph import scan_graph
from ouzel.engines.kleene.graph_state import new_graph_output, new_graph_state
from ouzel.engines.kleene.matches import Expanded, expand_matches
from ouzel.engines.kleene.runs import scan
from ouzel.engines.kleene.state import new_run_output, new_run_state
from ouzel.engines.kleene.tables import (
    Load,
    Rule,
    RunEvents,
    RunPlace,
    RunTables,
    RunTest,
    Selection,
    Source,
    build_run_tables,
)
from ouzel.engines.kleene.tables import new_events as empty_events
from ouzel.kernels.predicate_tables import Atom, Comparison, Lane

pytestmark = pytest.mark.compiled

# Without compilation every case takes seconds.
CASES = 6 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
FIRST, CURRENT, PREVIOUS, B = range(4)
RISING = RunTest((Atom(Lane(CURRENT, 0), Comparison.GREATER, Lane(PREVIOUS, 0)),), (Load(Source.LAST, 0, PREVIOUS),))
BELOW = RunTest((Atom(Lane(B, 0), Comparison.LESS, Lane(FIRST, 0)),), (Load(Source.FIRST, 0, FIRST),))
Match = tuple[tuple[int, ...], int]


def tables_for(selection: Selection, window: int, *, below: bool, merge: bool) -> RunTables:
    places = [
        RunPlace(kleene=True, first=FIRST, current=CURRENT, take=(RISING,), repeated=Rule.NEXT),
        RunPlace(first=B, begin=(BELOW,) if below else (), entered=Rule.NEXT),
    ]
    return build_run_tables(places, selection=selection, window=window, merge=merge)


def random_events(rng: np.random.Generator, tables: RunTables, count: int) -> RunEvents:
    events = empty_events(tables, count + 1, int_lanes=1)
    events.end[1:] = np.cumsum(rng.integers(0, 2, count))
    events.roles[1:] = np.where(rng.random(count) < 0.6, 0b011, 0b100)
    events.int_lanes[0, 1:] = rng.integers(0, 6, count)
    events.sequence[:] = np.arange(len(events.sequence))
    events.position[:] = np.arange(len(events.position))
    return events


def naive(tables: RunTables, events: RunEvents, selection: Selection, *, below: bool) -> set[Match]:
    """Every run as the tuple of its slots; an event may make one into three."""
    x, end = events.int_lanes[0], events.end
    runs: set[tuple[int, ...]] = set()
    found: set[Match] = set()
    for slot in range(1, len(end)):
        is_a = events.roles[slot] == 0b011
        after: set[tuple[int, ...]] = {(slot,)} if is_a else set()
        for run in runs:
            follows = end[slot] > end[run[-1]] and end[slot] - end[run[0]] < tables.window
            takes = bool(is_a and follows and x[slot] > x[run[-1]])
            if not is_a and follows and (not below or x[slot] < x[run[0]]):
                found.add((run, slot))
            if takes:
                after.add((*run, slot))
            passes = selection == Selection.NEXT_MATCH and not takes
            if selection == Selection.ANY_MATCH or passes:
                after.add(run)
        runs = after
    return found


def naive_by_step(tables: RunTables, events: RunEvents, *, below: bool) -> set[Match]:
    """Every choice of events in which each event is the first after the one before it that its step accepts."""
    x, end = events.int_lanes[0], events.end

    def accepts(run: tuple[int, ...], slot: int, takes: bool) -> bool:
        follows = end[slot] > end[run[-1]] and end[slot] - end[run[0]] < tables.window
        if takes:
            return bool(follows and events.roles[slot] == 0b011 and x[slot] > x[run[-1]])
        return bool(follows and events.roles[slot] == 0b100 and (not below or x[slot] < x[run[0]]))

    found: set[Match] = set()
    runs = [(slot,) for slot in range(1, len(end)) if events.roles[slot] == 0b011]
    for run in runs:
        for takes in (False, True):
            later = range(run[-1] + 1, len(end))
            following = next((slot for slot in later if accepts(run, slot, takes)), None)
            if following is not None and takes:
                runs.append((*run, following))
            elif following is not None:
                found.add((run, following))
    return found


def as_matches(lengths: np.ndarray, slots: np.ndarray) -> list[Match]:
    bounds = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    whole = [tuple(slots[a:b].tolist()) for a, b in itertools.pairwise(bounds)]
    return [(match[:-1], match[-1]) for match in whole]


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("selection", Selection)
def test_runs_equal_the_twin(selection: Selection, below: bool, merge: bool) -> None:
    rng = np.random.default_rng(7)
    matching = 0
    for _ in range(CASES):
        tables = tables_for(selection, int(rng.integers(2, 12)), below=below, merge=merge)
        events = random_events(rng, tables, 18)
        state = new_run_state(tables, 4, len(events.end))
        output = new_run_output(1)
        middle = 1 + int(np.searchsorted(events.end[1:], events.end[9], side="right"))
        for first, last in ((1, middle), (middle, len(events.end))):
            _, _, state, output = scan(tables, state, events, first, last, output)
        expanded = expand_matches(tables, state, output)
        assert isinstance(expanded, Expanded)
        found = as_matches(expanded.lengths, expanded.slots)
        assert len(found) == len(set(found)), "a match is found once"
        if selection == Selection.BY_STEP:
            assert set(found) == naive_by_step(tables, events, below=below)
        else:
            assert set(found) == naive(tables, events, selection, below=below)
        matching += bool(found)
    assert matching > CASES / 6


def test_the_graph_equals_the_twin() -> None:
    rng = np.random.default_rng(8)
    for _ in range(CASES):
        tables = tables_for(Selection.ANY_MATCH, int(rng.integers(2, 12)), below=False, merge=False)
        events = random_events(rng, tables, 18)
        _, _, _, output = scan_graph(
            tables, new_graph_state(tables, 4), events, 1, len(events.end), new_graph_output(tables, 1, 1)
        )
        rows, used = output.found[:2].tolist()
        found = as_matches(output.lengths[:rows], output.slots[:used])
        assert len(found) == len(set(found))
        assert set(found) == naive(tables, events, Selection.ANY_MATCH, below=False)

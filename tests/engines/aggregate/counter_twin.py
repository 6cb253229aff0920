"""Counting by building every match: the naive twin of the counter kernels, and random queries for both."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from ouzel.engines.aggregate.tables import (
    NOTHING,
    CounterInstances,
    CounterOutput,
    Measure,
    MeasureKind,
    Over,
    new_counter_instances,
)


class Query(NamedTuple):
    negated: tuple[bool, ...]
    kleene: tuple[bool, ...]
    window: int | None
    measures: tuple[Measure, ...] = ()
    on_change: bool = False
    split: int | None = None
    everywhere: bool = False  # whether negative events of key 0 forbid everywhere

    @property
    def positives(self) -> list[int]:
        return [component for component, negative in enumerate(self.negated) if not negative]


class Row(NamedTuple):
    tick: int
    group: int
    count: int
    values: tuple[int | float | None, ...]  # of measures; None is the least of nothing


Match = tuple[tuple[int, ...], ...]  # slots by positive component


def matches(query: Query, instances: CounterInstances, used: int) -> Iterator[Match]:
    """Every choice of slots that order, keys, window and negation allow."""
    tick, component, key = instances.tick, instances.component, instances.key

    def longer(chosen: Match) -> Iterator[Match]:
        last = chosen[-1][-1] if chosen else None
        if len(chosen) == len(query.positives):
            yield chosen
        for slot in range(used):
            if last is not None and (tick[slot] <= tick[last] or key[slot] != key[last]):
                continue
            if chosen and query.window is not None and tick[slot] - tick[chosen[0][0]] >= query.window:
                continue
            if len(chosen) < len(query.positives) and component[slot] == query.positives[len(chosen)]:
                yield from longer((*chosen, (slot,)))
            current = query.positives[len(chosen) - 1] if chosen else -1
            if component[slot] == current and query.kleene[current]:
                yield from longer((*chosen[:-1], (*chosen[-1], slot)))

    for match in longer(()):
        if not any(_forbids(query, instances, match, slot) for slot in range(used)):
            yield match


def _forbids(query: Query, instances: CounterInstances, match: Match, slot: int) -> bool:
    component = int(instances.component[slot])
    if not query.negated[component]:
        return False
    first, last = match[0][0], match[-1][-1]
    if instances.key[slot] != instances.key[first] and not (query.everywhere and instances.key[slot] == 0):
        return False
    tick = instances.tick
    before = [slots for positive, slots in zip(query.positives, match, strict=True) if positive < component]
    after = [slots for positive, slots in zip(query.positives, match, strict=True) if positive > component]
    assert after, "a negated end is not counted"
    if not before:
        assert query.window is not None
        return bool(tick[last] - query.window < tick[slot] < tick[first])
    return bool(tick[before[-1][-1]] < tick[slot] < tick[after[0][0]])


def rows(query: Query, instances: CounterInstances, used: int, key_group: list[int]) -> list[Row]:
    """What must be reported: docs/semantics.md, "Aggregates", and with EMIT ON CHANGE a row for every change."""
    found = list(dict.fromkeys(matches(query, instances, used)))
    groups: dict[int, list[Match]] = {}
    for match in found:
        groups.setdefault(_group(query, instances, match, key_group), []).append(match)
    told = []
    for group, members in groups.items():
        ends = {int(instances.tick[match[-1][-1]]) for match in members}
        moments = set(ends)
        if query.on_change and query.window is not None:
            moments |= {int(instances.tick[match[0][0]]) + query.window for match in members}
        for moment in moments:
            now = _read(query, instances, members, moment)
            if moment in ends or now != _read(query, instances, members, moment - 1):
                told.append(Row(moment, group, *now))
    return sorted(told)


def _group(query: Query, instances: CounterInstances, match: Match, key_group: list[int]) -> int:
    if query.split is None:
        return key_group[int(instances.key[match[0][0]])]
    return int(instances.group[match[query.positives.index(query.split)][0]])


def _read(
    query: Query, instances: CounterInstances, members: list[Match], now: int
) -> tuple[int, tuple[int | float | None, ...]]:
    tick = instances.tick
    standing = [
        match
        for match in members
        if tick[match[-1][-1]] <= now and (query.window is None or now - tick[match[0][0]] < query.window)
    ]
    return len(standing), tuple(_measured(query, instances, measure, standing) for measure in query.measures)


def _measured(query: Query, instances: CounterInstances, measure: Measure, standing: list[Match]) -> int | float | None:
    slots = [match[query.positives.index(measure.component)] for match in standing]
    chosen = {
        Over.EVERY: list(itertools.chain(*slots)),
        Over.FIRST: [some[0] for some in slots],
        Over.LAST: [some[-1] for some in slots],
    }[measure.over]
    if measure.kind is MeasureKind.FLOAT:
        return float(sum(instances.floats[measure.lane, slot] for slot in chosen))
    values = [int(instances.ints[measure.lane, slot]) for slot in chosen]
    if measure.kind is MeasureKind.INTEGER:
        return sum(values)
    least = min(values, default=NOTHING)
    return None if least == NOTHING else least


def reported(query: Query, output: CounterOutput) -> list[Row]:
    """The rows of a kernel's output."""
    told = []
    for row in range(int(output.written[0])):
        words = [int(word) for word in output.words[row]]
        values: list[int | float | None] = []
        for number, measure in enumerate(query.measures):
            low, high = words[2 + 2 * number], words[3 + 2 * number]
            if measure.kind is MeasureKind.FLOAT:
                values.append(float(output.reals[row, 1 + number]))
            elif measure.kind is MeasureKind.INTEGER:
                values.append(_signed(low, high))
            else:
                values.append(None if low == NOTHING else low - (2**64 if low >= 2**63 else 0))
        told.append(Row(int(output.tick[row]), int(output.group[row]), words[0] + (words[1] << 64), tuple(values)))
    return sorted(told)


def _signed(low: int, high: int) -> int:
    value = low + (high << 64)
    return value - 2**128 if value >= 2**127 else value


# ── Random cases ───────────────────────────────────────────────────────────────────────────────────


def random_query(
    rng: random.Random, *, kleene: bool = True, negation: bool = True, negated_start: bool = True, split: bool = True
) -> Query:
    while True:
        shape = [rng.choice("..+-" if negation else "..+") for _ in range(rng.randint(1, 5))]
        if not kleene:
            shape = ["." if kind == "+" else kind for kind in shape]
        if shape[-1] != "-" and (negated_start or shape[0] != "-") and shape.count("+") <= 2:
            break
    negated = tuple(kind == "-" for kind in shape)
    with_plus = tuple(kind == "+" for kind in shape)
    window = rng.randint(2, 12) if shape[0] == "-" or rng.random() < 0.8 else None
    positives = [component for component, negative in enumerate(negated) if not negative]
    measures = []
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        kind = rng.choice(list(MeasureKind))
        component = rng.choice(positives)
        over = rng.choice(list(Over)) if with_plus[component] else Over.EVERY
        lane = rng.randint(0, 1) if kind is MeasureKind.FLOAT else rng.randint(0, 1) + 2 * (kind is MeasureKind.LEAST)
        measures.append(Measure(kind, component, lane, over))
    single = [component for component in positives if not with_plus[component]]
    chosen = rng.choice(single) if split and single and rng.random() < 0.4 else None
    return Query(negated, with_plus, window, tuple(measures), rng.random() < 0.5, chosen, rng.random() < 0.5)


def random_counter_instances(rng: random.Random, query: Query) -> tuple[CounterInstances, int, list[int]]:
    """Instances, how many of them there are, and the group of each key. Key 0 is that of no partition."""
    used = rng.randint(0, 9 if any(query.kleene) else 18)
    keys = rng.choice((1, 1, 2, 3))
    instances = new_counter_instances(used, 4, 2, grouped=True)
    events = []
    tick = rng.randint(-5, 5)
    for _ in range(used):
        tick += rng.choice((0, 1, 1, 2, 3))
        component = rng.randrange(len(query.negated))
        key = rng.randint(1, keys) if keys > 1 else 0
        if keys > 1 and query.everywhere and query.negated[component] and rng.random() < 0.3:
            key = 0
        events.append((tick, -component, key))
    for slot, (tick, component, key) in enumerate(sorted(events)):
        instances.tick[slot] = tick
        instances.component[slot] = -component
        instances.key[slot] = key
        instances.group[slot] = rng.randint(0, 2)
        instances.ints[:, slot] = [rng.randint(-3, 3) for _ in range(4)]
        for lane in (2, 3):
            if rng.random() < 0.2:
                instances.ints[lane, slot] = NOTHING
        instances.floats[:, slot] = [rng.randint(-4, 4) / 2 for _ in range(2)]
    key_group = [rng.randint(0, 1) for _ in range(keys + 1)]
    return instances, used, key_group

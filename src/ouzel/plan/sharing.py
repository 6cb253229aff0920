"""Aggregates that are counted together: which queries may share, what they share, and whether that is worth it.

Two queries may share counters if each, alone, would be counted by inverse matrices, as COUNT and the SUM, AVG and COUNT
of integers are, and without EMIT ON CHANGE; both read the primary stream, with the same types known of it; and their
events are kept apart by the same keys. Groups, HAVING and names may differ. Components are the same *symbol* if they
have the same types, the same predicates on single events, and the same key. A sum is a pattern of its own, in which the
component that it is over is a symbol with a weight; what comes before that it shares with the count, and with other
sums over the same. Queries that may share are staged together, whatever their patterns; those whose windows are equal
also share a tree of counters (a *bank*): what patterns begin with in common is counted once, and so are segments that
stand in several of them, wherever that pays. Sharing is never visible in answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ouzel.bind.model import Attribute, Bound, Component, Conjunct, Edge, Intrinsic, Operation, TimeWindow
from ouzel.kernels.counters_shared_tables import Part, SegmentPart, build_shared_tables
from ouzel.kernels.counters_tables import Way
from ouzel.plan.aggregate import AggregatePlan, MeasureSpec
from ouzel.plan.automaton import label_of
from ouzel.plan.model import KeyPart, Plan, Statistics
from ouzel.plan.rules import SHARE_COUNTERS

# The stager knows an event's roles as the bits of one word.
SYMBOLS_MAX = 64
SEGMENTS_MAX = 8
_CANDIDATES_MAX = 64

# What events cost, a plain one being 1 (benchmarks.aggregate_sharing). A node beside a segment reads a snapshot or
# writes one.
SEGMENT_COST = 1.2
JOINT_COST = 1.5
SNAPSHOT_WORD_COST = 0.2
# Estimates are rough: a segment must promise this much before it is cut out, so that a wrong one costs little.
WORTH_MAX = 0.8


@dataclass(frozen=True, slots=True)
class Bank:
    """Queries with one window, and the tree of their patterns."""

    names: tuple[str, ...]
    window: TimeWindow
    # For each query its count and then its sums; `columns` tells for each the query and the column.
    patterns: tuple[tuple[Part, ...], ...]
    columns: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, ...], ...]
    # Steps of counting for each event that any of the queries reads, alone and shared.
    alone_cost: float
    shared_cost: float


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """Queries that are staged together. `stage` is a plan whose components are the symbols."""

    plans: Mapping[str, AggregatePlan]
    stage: AggregatePlan
    banks: tuple[Bank, ...]
    # What the instances of some symbols weigh.
    weights: Mapping[int, MeasureSpec]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.plans)

    def of(self, name: str) -> AggregatePlan:
        """The symbols with the groups of one query."""
        query = self.plans[name].query
        return replace(
            self.stage,
            query=replace(self.stage.query, name=name, group_by=query.group_by, equivalences=query.equivalences),
        )


def plan_sharing(
    plans: Mapping[str, Plan], statistics: Statistics | None = None, *, off: Collection[str] = ()
) -> tuple[SharedPlan, ...]:
    """Which of some queries over one stream are counted together. Every one of the others is answered alone."""
    if SHARE_COUNTERS in off:
        return ()
    alike: dict[object, list[str]] = {}
    for name, plan in plans.items():
        if refusal(plan) is None:
            assert isinstance(plan, AggregatePlan)
            alike.setdefault((_keys_of(plan), _Same(plan.query.catalog)), []).append(name)
    made = []
    for names in alike.values():
        for group in _small_enough(names, plans):
            if len(group) > 1:
                made.append(_shared(group, plans, statistics or Statistics()))
    return tuple(made)


def refusal(plan: Plan) -> str | None:
    """Why a query is answered alone; None where it may share."""
    if not isinstance(plan, AggregatePlan):
        return "it asks for matches"
    if plan.way is not Way.INVERSE:
        return "it is not counted by inverse matrices"
    if plan.query.emit_on_change:
        return "it is told of expiry"
    if _keys_of(plan) is None:
        return "its components have different keys"
    return None


class _Same:
    """Something that may not be hashed, by equality."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value == other._value


# ── Symbols ────────────────────────────────────────────────────────────────────────────────────────


def _moved(expression: Bound, component: int) -> Bound:
    """The same of another component."""
    if isinstance(expression, Attribute | Intrinsic):
        return replace(expression, component=component)
    if isinstance(expression, Operation):
        return replace(expression, operands=tuple(_moved(operand, component) for operand in expression.operands))
    return expression


def _keys_of(plan: AggregatePlan) -> frozenset[Bound] | None:
    """The values that keep events apart, each the same for all components."""
    found = set()
    for part in plan.key:
        values = {_moved(expression, 0) for expression in part.expressions.values()}
        if len(values) != 1:
            return None
        found |= values
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a component asks of single events; of one that is summed over, also what an event adds."""

    types: tuple[str, ...] | None
    tests: frozenset[tuple[Bound, ...]]
    weight: MeasureSpec | None = None


def _patterns_of(plan: AggregatePlan) -> list[tuple[Symbol, ...]]:
    """The pattern that is counted, and one for each sum."""
    counted = []
    for component in plan.positives:
        types = None if component.types is None else tuple(sorted(component.types))
        tests = frozenset(
            tuple(_moved(comparison, 0) for comparison in conjunct.comparisons)
            for conjunct in plan.roles.get(component.position, ())
        )
        counted.append(Symbol(types, tests))
    made = [tuple(counted)]
    places = {component.position: place for place, component in enumerate(plan.positives)}
    for measure in plan.measures:
        weight = replace(measure, expression=_moved(measure.expression, 0), component=0)
        place = places[measure.component]
        made.append((*counted[:place], replace(counted[place], weight=weight), *counted[place + 1 :]))
    return made


def _small_enough(names: Sequence[str], plans: Mapping[str, Plan]) -> list[list[str]]:
    """Groups whose symbols fit the stager, those with common ones together where that is easy."""
    groups: list[tuple[list[str], set[Symbol]]] = []
    for name in names:
        plan = plans[name]
        assert isinstance(plan, AggregatePlan)
        wanted = {symbol for pattern in _patterns_of(plan) for symbol in pattern}
        fitting = [group for group in groups if len(group[1] | wanted) <= SYMBOLS_MAX]
        if not fitting:
            groups.append(([name], wanted))
            continue
        best = max(fitting, key=lambda group: len(group[1] & wanted))
        best[0].append(name)
        best[1].update(wanted)
    return [group for group, _ in groups]


def _shared(names: Sequence[str], plans: Mapping[str, Plan], statistics: Statistics) -> SharedPlan:
    own: dict[str, AggregatePlan] = {}
    numbers: dict[Symbol, int] = {}
    patterns: dict[str, list[tuple[int, ...]]] = {}
    labels: dict[int, str] = {}
    for name in names:
        plan = plans[name]
        assert isinstance(plan, AggregatePlan)
        own[name] = plan
        patterns[name] = []
        for pattern in _patterns_of(plan):
            for component, symbol in zip(plan.positives, pattern, strict=True):
                labels.setdefault(numbers.setdefault(symbol, len(numbers)), label_of(component))
            patterns[name].append(tuple(numbers[symbol] for symbol in pattern))
    stage = _stage_plan(own[names[0]], list(numbers), labels)
    rates = [_rate(symbol, statistics) for symbol in numbers]
    weights = {
        number: replace(symbol.weight, expression=_moved(symbol.weight.expression, number), component=number)
        for symbol, number in numbers.items()
        if symbol.weight is not None
    }
    # While the unit of time is not known, windows are equal if they are written alike.
    windows: dict[object, list[str]] = {}
    for name, plan in own.items():
        windows.setdefault(plan.window_ticks or _window_of(plan).written, []).append(name)
    banks = tuple(
        _bank(members, _window_of(own[members[0]]), [patterns[name] for name in members], rates, weights.keys())
        for members in windows.values()
    )
    return SharedPlan(own, stage, banks, weights)


def _window_of(plan: AggregatePlan) -> TimeWindow:
    window = plan.query.window
    assert isinstance(window, TimeWindow)
    return window


def _stage_plan(like: AggregatePlan, symbols: Sequence[Symbol], labels: Mapping[int, str]) -> AggregatePlan:
    """A plan by which events are staged: each symbol a component, with its tests and keys."""
    components = tuple(
        Component(number, labels[number], symbol.types, kleene=False, negated=False)
        for number, symbol in enumerate(symbols)
    )
    roles = {
        number: tuple(
            Conjunct(tuple(_moved(x, number) for x in test), frozenset((number,)), None, number, Edge.BEGIN)
            for test in sorted(symbol.tests, key=repr)
        )
        for number, symbol in enumerate(symbols)
    }
    key = []
    for part in like.key:
        value = next(iter(part.expressions.values()))
        key.append(KeyPart(part.label, part.type, {number: _moved(value, number) for number in range(len(symbols))}))
    query = replace(like.query, components=components, conjuncts=(), group_by=(), aggregates=(), having=None)
    known = {field.name: getattr(like, field.name) for field in fields(AggregatePlan)}
    return AggregatePlan(**(known | {"query": query, "roles": roles, "key": tuple(key), "notes": ()}))


def _rate(symbol: Symbol, statistics: Statistics) -> float:
    """How often a symbol comes, of all events; all alike where nothing is known."""
    if not statistics.rates or symbol.types is None:
        return 1.0
    return sum(statistics.rates.get(name, 0.0) for name in symbol.types)


# ── What to share ──────────────────────────────────────────────────────────────────────────────────


def _bank(
    names: Sequence[str],
    window: TimeWindow,
    patterns: Sequence[Sequence[tuple[int, ...]]],
    rates: Sequence[float],
    weighted: Collection[int],
) -> Bank:
    flat = [pattern for own in patterns for pattern in own]
    columns = [(query, column) for query, own in enumerate(patterns) for column in range(len(own))]
    # Alone, too, a sum is kept from the component on that it is over.
    alone = sum(cost(own, (), rates) for own in patterns)
    parts, segments = choose_segments(flat, rates, weighted)
    return Bank(tuple(names), window, parts, tuple(columns), segments, alone, cost(parts, segments, rates))


def cost(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]], rates: Sequence[float]) -> float:
    """Steps of counting for each turn of the stream, with common beginnings merged.

    >>> cost([(0, 1, 2), (0, 1, 3)], (), [1.0] * 4)
    4.0
    """
    total = sum(SEGMENT_COST * rates[symbol] for segment in segments for symbol in segment)
    # What each node costs, by the parts that lead to it.
    nodes: dict[tuple[Part, ...], float] = {}
    snapshots: set[tuple[Part, ...]] = set()
    for pattern in patterns:
        level = 0
        words = 0.0
        for place, part in enumerate(pattern):
            here = tuple(pattern[: place + 1])
            if isinstance(part, SegmentPart):
                side = len(segments[part.segment]) + 1
                words = SNAPSHOT_WORD_COST * side * level
                if here not in snapshots:
                    snapshots.add(here)
                    nodes[here[:-1]] = max(JOINT_COST, nodes[here[:-1]]) + words
                level += side
            else:
                nodes.setdefault(here, JOINT_COST + words if words else 1.0)
                words = 0.0
                level += 1
    return total + sum(price * rates[here[-1]] for here, price in nodes.items() if isinstance(here[-1], int))


def choose_segments(
    patterns: Sequence[tuple[int, ...]], rates: Sequence[float], weighted: Collection[int] = ()
) -> tuple[tuple[tuple[Part, ...], ...], tuple[tuple[int, ...], ...]]:
    """The patterns with segments cut out as long as that promises to pay, the best first; none has a `weighted` symbol,
    nor stands beside one.

    >>> choose_segments([(0, 1, 2)], [1.0] * 3)
    (((0, 1, 2),), ())
    """
    parts: tuple[tuple[Part, ...], ...] = tuple(tuple(pattern) for pattern in patterns)
    segments: tuple[tuple[int, ...], ...] = ()
    now = cost(parts, segments, rates)
    while len(segments) < SEGMENTS_MAX:
        best = None
        for candidate in _candidates(parts, rates, weighted):
            cut = tuple(_cut(pattern, candidate, len(segments), weighted) for pattern in parts)
            then = cost(cut, (*segments, candidate), rates)
            if (
                then <= WORTH_MAX * now
                and (best is None or then < best[0])
                and _is_orderly(cut, (*segments, candidate))
            ):
                best = then, cut, candidate
        if best is None:
            break
        now, parts = best[0], best[1]
        segments = (*segments, best[2])
    return parts, segments


def _candidates(
    patterns: Sequence[tuple[Part, ...]], rates: Sequence[float], weighted: Collection[int]
) -> list[tuple[int, ...]]:
    """Substrings that stand behind several different beginnings, with an own part before and behind them."""
    places: dict[tuple[int, ...], set[tuple[Part, ...]]] = {}
    for pattern in patterns:
        for first in range(1, len(pattern) - 2):
            for last in range(first + 2, len(pattern)):
                inner = pattern[first:last]
                around = (pattern[first - 1], *inner, pattern[last])
                if any(isinstance(part, SegmentPart) or part in weighted for part in around):
                    continue
                places.setdefault(tuple(part for part in inner if isinstance(part, int)), set()).add(pattern[:first])
    saving = {
        segment: (len(starts) - 1) * sum(rates[symbol] for symbol in segment)
        for segment, starts in places.items()
        if len(starts) > 1
    }
    return sorted(saving, key=lambda segment: -saving[segment])[:_CANDIDATES_MAX]


def _cut(
    pattern: tuple[Part, ...], segment: tuple[int, ...], number: int, weighted: Collection[int]
) -> tuple[Part, ...]:
    """A pattern with the first place where a segment may stand taken by it."""
    width = len(segment)
    for first in range(1, len(pattern) - width):
        if pattern[first : first + width] == segment:
            neighbours = (pattern[first - 1], pattern[first + width])
            if not any(isinstance(part, SegmentPart) or part in weighted for part in neighbours):
                return (*pattern[:first], SegmentPart(number), *pattern[first + width :])
    return pattern


def _is_orderly(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]]) -> bool:
    """No two segments stand in both orders, so that within a moment the later one can be counted first."""
    try:
        build_shared_tables(patterns, segments, window=1, summed=[False] * len(patterns))
    except ValueError:
        return False
    return True


# ── EXPLAIN ────────────────────────────────────────────────────────────────────────────────────────


def sharing_lines(shared: Sequence[SharedPlan], plans: Mapping[str, Plan]) -> list[str]:
    """What is counted together, and why the others are not."""
    lines = []
    for one in shared:
        keys = f", by {', '.join(part.label for part in one.stage.key)}" if one.stage.key else ""
        lines.append(f"{_listed(one.names)} are staged together{keys}")
        for bank in one.banks:
            lines += [f"  {line}" for line in _bank_lines(one, bank)]
    together = {name for one in shared for name in one.names}
    for name, plan in plans.items():
        if name not in together:
            lines.append(f"{name} is answered alone: {refusal(plan) or 'no other query goes with it'}")
    return lines


def _bank_lines(shared: SharedPlan, bank: Bank) -> list[str]:
    def named(symbols: Sequence[int]) -> str:
        return ", ".join(shared.stage.query.components[symbol].variable for symbol in symbols)

    lines = [f"within {bank.window.written or bank.window.ticks}: {_listed(bank.names)} in one tree of counters"]
    for prefix, members in _common_prefixes(bank):
        lines.append(f"  ({named(prefix)}) is counted once for {_listed(members)}")
    for number, segment in enumerate(bank.segments):
        users = {
            bank.names[query]: None
            for (query, _), pattern in zip(bank.columns, bank.patterns, strict=True)
            if SegmentPart(number) in pattern
        }
        lines.append(f"  ({named(segment)}) is counted once and connected by snapshots for {_listed(list(users))}")
    if bank.shared_cost < bank.alone_cost:
        lines.append(f"  about {bank.shared_cost / bank.alone_cost:.0%} of the steps of counting one by one")
    else:
        lines.append("  nothing in common: as many steps as one by one")
    return lines


def _common_prefixes(bank: Bank) -> list[tuple[list[int], list[str]]]:
    """The longest beginnings that several queries share."""
    found: dict[tuple[Part, ...], list[str]] = {}
    for (query, _), pattern in zip(bank.columns, bank.patterns, strict=True):
        for length in range(1, len(pattern) + 1):
            members = found.setdefault(pattern[:length], [])
            if bank.names[query] not in members:
                members.append(bank.names[query])
    shown = []
    for prefix, members in found.items():
        longer = any(
            len(other) == len(prefix) + 1 and other[:-1] == prefix and names == members
            for other, names in found.items()
        )
        if len(members) > 1 and not longer:
            shown.append(([part for part in prefix if isinstance(part, int)], members))
    return shown


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

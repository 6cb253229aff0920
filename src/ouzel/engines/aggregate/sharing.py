"""Decides which aggregates are counted together, what they share, and whether this saves enough.

Two queries may share counters if both would be counted in the same way on their own. There are three ways: inverse
matrices (COUNT, and SUM, AVG and COUNT of integers), stacks (negation, MIN, MAX and sums of floats), and counting
without a window. With inverse matrices and EMIT ON CHANGE, only COUNT is shared. Both must read the primary stream,
with the same known types, and have the same window and the same keys. Groups, HAVING and names may differ.

Components are the same *symbol* if they have the same types, the same predicates on single events and the same key, and
if the same negations follow. A sum is a separate pattern, in which the summed component is a symbol with a weight. It
shares the part before this symbol with the count, and with other sums over the same component. The patterns form a tree
of counters: common prefixes are counted once. With a window, and if everything has an inverse, segments that several
patterns contain are also counted once.

Queries share if they have at least two consecutive symbols in common, as a prefix or a segment, and if this saves
enough updates of counters. Sharing never changes answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise, takewhile

from ouzel.bind.model import Bound, Component, Conjunct, Edge, TimeWindow, replaced
from ouzel.engines.aggregate.plan import SHARE_COUNTERS, AggregatePlan, MeasureSpec, measures_of
from ouzel.engines.aggregate.tables import LANES, MeasureKind, Part, SegmentPart, Way, build_shared_tables
from ouzel.plan.diagram import label_of
from ouzel.plan.model import KeyPart, Plan, Statistics

SEGMENTS_MAX = 8
_CANDIDATES_MAX = 64
# Queries share, and a segment is used, if at most this part of the updates of counters remains. The rest pays for the
# cost of sharing: longer columns, and rows that must be separated by query.
SHARED_MAX = 0.7
SEGMENT_MAX = 0.7
# The number of consecutive symbols that queries must have in common to share.
COMMON_MIN = 2


def updates(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]], rates: Sequence[float]) -> float:
    """The number of counters that an average event of the stream updates if common prefixes are merged.

    An event updates one counter at each place of the tree or of a segment that it may fill. A segment costs one more
    update on either side: the event before it takes a snapshot of its counters, and the event after it multiplies by
    that snapshot. In long segments these two cost more: half an update for each further vector of LANES words.

    >>> updates([(0, 1), (0, 2)], (), [1.0] * 3)
    3.0
    """
    side = [0.5 + 0.5 * -(-(len(segment) + 1) // LANES) for segment in segments]
    total = float(sum(rates[symbol] for segment in segments for symbol in segment))
    seen: set[tuple[Part, ...]] = set()
    for pattern in patterns:
        for place, part in enumerate(pattern):
            here = tuple(pattern[: place + 1])
            if here in seen:
                continue
            seen.add(here)
            before = pattern[place - 1] if place else None
            if isinstance(part, SegmentPart):
                assert isinstance(before, int)
                total += rates[before] * side[part.segment]
            else:
                total += rates[part] * (1.0 + (side[before.segment] if isinstance(before, SegmentPart) else 0.0))
    return total


def choose_segments(
    patterns: Sequence[tuple[int, ...]],
    rates: Sequence[float],
    weighted: Collection[int] = (),
    *,
    most: int = SEGMENTS_MAX,
) -> tuple[tuple[tuple[Part, ...], ...], tuple[tuple[int, ...], ...]]:
    """(patterns, segments): the patterns with common segments in place of their symbols. Segments are chosen greedily
    while each saves enough. No segment contains a `weighted` symbol or is next to one.

    >>> choose_segments([(0, 1, 2)], [1.0] * 3)
    (((0, 1, 2),), ())
    """
    parts: tuple[tuple[Part, ...], ...] = tuple(tuple(pattern) for pattern in patterns)
    segments: tuple[tuple[int, ...], ...] = ()
    now = updates(parts, segments, rates)
    while len(segments) < most:
        best = None
        for candidate in _candidates(parts, rates, weighted):
            cut = tuple(_cut(pattern, candidate, len(segments), weighted) for pattern in parts)
            then = updates(cut, (*segments, candidate), rates)
            if (
                then <= SEGMENT_MAX * now
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
    """Possible segments: substrings that follow several different prefixes, and have a symbol before and after them."""
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
    """A pattern in which a segment replaces its symbols, at the first place where that is possible."""
    width = len(segment)
    for first in range(1, len(pattern) - width):
        if pattern[first : first + width] == segment:
            neighbours = (pattern[first - 1], pattern[first + width])
            if not any(isinstance(part, SegmentPart) or part in weighted for part in neighbours):
                return (*pattern[:first], SegmentPart(number), *pattern[first + width :])
    return pattern


def _is_orderly(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]]) -> bool:
    """Whether no two segments appear in both orders. Then, within a timestamp, the later one can be counted first."""
    try:
        build_shared_tables(patterns, segments, window=1, summed=[False] * len(patterns))
    except ValueError:
        return False
    return True


# The stager has the roles of an event as the bits of one word.
SYMBOLS_MAX = 64
# Ignore this much of a difference between rates: a first batch may be small.
RATES_UNKNOWN = 0.1


@dataclass(frozen=True, slots=True)
class CounterTree:
    """Queries with one window, and the tree of their patterns."""

    names: tuple[str, ...]
    window: TimeWindow | None
    on_change: bool
    # For each query its count and then its sums; `columns` has the query and the column of each.
    patterns: tuple[tuple[Part, ...], ...]
    columns: tuple[tuple[int, int], ...]
    segments: tuple[tuple[int, ...], ...]
    # Counters that an event of the stream updates, without and with sharing.
    alone_updates: float
    shared_updates: float


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """Queries that are counted together. In the plan `stage`, each symbol is a component."""

    plans: Mapping[str, AggregatePlan]
    stage: AggregatePlan
    tree: CounterTree
    numbers: Mapping[Symbol, int]
    # The weights of the instances of some symbols.
    weights: Mapping[int, MeasureSpec]
    # The negative symbols after some symbols.
    closes: Mapping[int, tuple[int, ...]]
    # Each symbol's estimated share of all events.
    rates: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.plans)

    @property
    def by_stacks(self) -> bool:
        """Whether something cannot be subtracted when it leaves the window."""
        return self.stage.way is Way.STACKS

    def number_of(self, name: str, component: Component) -> int:
        """The number of the symbol of a negative component of a query."""
        return self.numbers[_symbol(self.plans[name], component)]

    def of(self, name: str) -> AggregatePlan:
        """A plan to stage events for one query: its symbols and its groups."""
        query = self.plans[name].query
        return replace(
            self.stage,
            query=replace(self.stage.query, name=name, group_by=query.group_by, equivalences=query.equivalences),
        )


def plan_sharing(
    plans: Mapping[str, Plan], statistics: Statistics | None = None, *, off: Collection[str] = ()
) -> tuple[SharedPlan, ...]:
    """Which queries over one stream are counted together. All others are answered separately."""
    if SHARE_COUNTERS in off:
        return ()
    alike: dict[object, dict[str, AggregatePlan]] = {}
    for name, plan in plans.items():
        if refusal(plan) is None:
            assert isinstance(plan, AggregatePlan)
            alike.setdefault((*_alike(plan), _Same(plan.query.catalog)), {})[name] = plan
    made = []
    for own in alike.values():
        if not _may_have_parts_in_common(list(own.values())):
            continue
        patterns = {name: _patterns_of(plan) for name, plan in own.items()}
        for group in _small_enough(patterns):
            if len(group) < 2:
                continue
            shared = shared_plan({name: own[name] for name in group}, statistics or Statistics(), patterns)
            kept = [name for lot in _lots(shared) for name in lot]
            if 1 < len(kept) < len(group):
                shared = shared_plan({name: own[name] for name in kept}, statistics or Statistics(), patterns)
            if len(kept) > 1:
                made.append(shared)
    return tuple(made)


def shared_plan(
    plans: Mapping[str, AggregatePlan],
    statistics: Statistics,
    known: Mapping[str, Sequence[tuple[Symbol, ...]]] | None = None,
) -> SharedPlan:
    """The plan for queries that are counted together, whether or not this saves updates. `known` are their patterns, if
    these have been computed.
    """
    numbers: dict[Symbol, int] = {}
    patterns: list[list[tuple[int, ...]]] = []
    labels: list[str] = []
    for name, plan in plans.items():
        patterns.append([])
        for pattern in known[name] if known else _patterns_of(plan):
            _number(plan, pattern, numbers, labels)
            patterns[-1].append(tuple(numbers[symbol] for symbol in pattern))
    like = next(iter(plans.values()))
    rates = tuple(_rate(symbol, statistics, len(numbers)) for symbol in numbers)
    tree = _tree(list(plans), like, patterns, rates, _weights(numbers))
    stage = _stage_plan(like, list(numbers), labels)
    return SharedPlan(plans, stage, tree, numbers, _weights(numbers), _closes(numbers), rates)


def _number(plan: AggregatePlan, pattern: Sequence[Symbol], numbers: dict[Symbol, int], labels: list[str]) -> None:
    """Number the symbols of a pattern, and those that close them."""
    components, symbols = plan.query.components, iter(pattern)
    for place, component in enumerate(components):
        symbol = _symbol(plan, component) if component.negated else next(symbols)
        if symbol not in numbers:
            numbers[symbol] = len(numbers)
            after = () if component.negated else takewhile(lambda one: one.negated, components[place + 1 :])
            labels.append(", ".join([label_of(component), *(f"!({label_of(one)})" for one in after)]))


def _closes(numbers: Mapping[Symbol, int]) -> dict[int, tuple[int, ...]]:
    found = {number: tuple(sorted(numbers[one] for one in symbol.closed_by)) for symbol, number in numbers.items()}
    return {number: closers for number, closers in found.items() if closers}


def may_share_tree(plans: Sequence[AggregatePlan]) -> bool:
    """Whether one tree of counters can count for all of some plans."""
    if any(refusal(plan) is not None for plan in plans):
        return False
    alike = {_alike(plan) for plan in plans}
    symbols = {symbol for plan in plans for symbol in _symbols_of(_patterns_of(plan))}
    return len(alike) == 1 and len(symbols) <= SYMBOLS_MAX


def shared_readings(plan: AggregatePlan, statistics: Statistics) -> SharedPlan:
    """The readings of one query in one tree. Each reading adds to all columns of the query, except to sums over
    components that it does not have.
    """
    numbers: dict[Symbol, int] = {}
    labels: list[str] = []
    patterns: list[tuple[int, ...]] = []
    columns: list[tuple[int, int]] = []
    whole = {column.name: column for column in plan.query.aggregates}
    for reading in plan.readings:
        sums: dict[MeasureSpec, int] = {}
        for own in reading.query.aggregates:
            if own.argument is not None:
                argument = whole[own.name].argument
                assert argument is not None
                known = measures_of(own.function, argument)
                for measure, one in zip(measures_of(own.function, own.argument), known, strict=True):
                    sums[measure] = 1 + plan.measures.index(one)
        columns += [(0, column) for column in (0, *(sums[measure] for measure in reading.measures))]
        for pattern in _patterns_of(reading):
            _number(reading, pattern, numbers, labels)
            patterns.append(tuple(numbers[symbol] for symbol in pattern))
    weights = _weights(numbers)
    rates = tuple(_rate(symbol, statistics, len(numbers)) for symbol in numbers)
    like = plan.readings[0]
    tree = replace(_tree([plan.query.name], like, [patterns], rates, weights), columns=tuple(columns))
    stage = _stage_plan(like, list(numbers), labels)
    return SharedPlan({plan.query.name: plan}, stage, tree, numbers, weights, _closes(numbers), rates)


def _weights(numbers: Mapping[Symbol, int]) -> dict[int, MeasureSpec]:
    """For each weighted symbol, the value that its events add."""
    return {
        number: replace(symbol.weight, expression=_moved(symbol.weight.expression, number), component=number)
        for symbol, number in numbers.items()
        if symbol.weight is not None
    }


def _may_have_parts_in_common(plans: Sequence[Plan]) -> bool:
    """Whether two plans begin with the same types, or have the same consecutive types somewhere."""
    seen: set[object] = set()
    for plan in plans:
        types = [component.types and tuple(sorted(component.types)) for component in plan.query.components]
        own: set[object] = {types[0], *pairwise(types)}
        if seen & own:
            return True
        seen |= own
    return False


def refusal(plan: Plan) -> str | None:
    """Why a query must be counted separately; None if it may share."""
    if not isinstance(plan, AggregatePlan):
        return "it asks for matches"
    if plan.way is Way.UNBOUNDED:
        if any(component.negated or component.kleene for component in plan.query.components):
            return "it has a negation or a +"
        if any(measure.kind is not MeasureKind.INTEGER for measure in plan.measures):
            return "without WITHIN only COUNT and sums of integers are shared"
    elif plan.split is not None:
        return "an event decides its groups"
    elif plan.way is Way.STACKS:
        if any(component.kleene for component in plan.query.components):
            return "it has a +"
        if plan.query.components[0].negated:
            return "its negation is at the start"
        if plan.several_keys_a_group:
            return "a group has several keys, whose totals cannot be subtracted"
    elif plan.way not in (Way.INVERSE, Way.CUMULATIVE):
        return "it is not counted by inverse matrices or stacks"
    elif plan.query.emit_on_change and plan.measures:
        return "with EMIT ON CHANGE only COUNT is shared"
    if _keys_of(plan) is None:
        return "its components have different keys"
    return None


class _Same:
    """Makes a value that may not be hashable comparable and hashable."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value == other._value


# ── Symbols ────────────────────────────────────────────────────────────────────────────────────────


def _moved(expression: Bound, component: int) -> Bound:
    """An expression with another component number."""
    return replaced(expression, lambda reference: replace(reference, component=component))


def _keys_of(plan: AggregatePlan) -> frozenset[Bound] | None:
    """The values that form the key, each of them the same for all components."""
    found = set()
    for part in plan.key:
        values = {_moved(expression, 0) for expression in part.expressions.values()}
        if len(values) != 1:
            return None
        found |= values
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Symbol:
    """The conditions of a component on single events; for a measured component, also what an event adds."""

    types: tuple[str, ...] | None
    tests: frozenset[tuple[Bound, ...]]
    weight: MeasureSpec | None = None
    # The negative components between it and the next one.
    closed_by: frozenset[Symbol] = frozenset()


def _alike(plan: AggregatePlan) -> tuple[object, ...]:
    """A value that is equal for queries that may share a tree."""
    return _keys_of(plan), plan.way is Way.STACKS, _window_key(plan)


def _symbols_of(patterns: Sequence[Sequence[Symbol]]) -> set[Symbol]:
    symbols = {symbol for pattern in patterns for symbol in pattern}
    return symbols.union(*(symbol.closed_by for symbol in symbols))


def _symbol(plan: AggregatePlan, component: Component) -> Symbol:
    types = None if component.types is None else tuple(sorted(component.types))
    tests = frozenset(
        tuple(_moved(comparison, 0) for comparison in conjunct.comparisons)
        for conjunct in plan.roles.get(component.position, ())
    )
    return Symbol(types, tests)


def _patterns_of(plan: AggregatePlan) -> list[tuple[Symbol, ...]]:
    """The pattern of the count, and one pattern for each measure."""
    counted: list[Symbol] = []
    for component in plan.query.components:
        symbol = _symbol(plan, component)
        if component.negated:
            counted[-1] = replace(counted[-1], closed_by=counted[-1].closed_by | {symbol})
        else:
            counted.append(symbol)
    made = [tuple(counted)]
    places = {component.position: place for place, component in enumerate(plan.positives)}
    for measure in plan.measures:
        weight = replace(measure, expression=_moved(measure.expression, 0), component=0)
        place = places[measure.component]
        made.append((*counted[:place], replace(counted[place], weight=weight), *counted[place + 1 :]))
    return made


def _small_enough(patterns: Mapping[str, Sequence[tuple[Symbol, ...]]]) -> list[list[str]]:
    """Divide queries so that the symbols of each part fit the stager. Queries with common symbols stay together where
    that is easy.
    """
    groups: list[tuple[list[str], set[Symbol]]] = []
    for name, own in patterns.items():
        wanted = _symbols_of(own)
        fitting = [group for group in groups if len(group[1] | wanted) <= SYMBOLS_MAX]
        if not fitting:
            groups.append(([name], wanted))
            continue
        best = max(fitting, key=lambda group: len(group[1] & wanted))
        best[0].append(name)
        best[1].update(wanted)
    return [group for group, _ in groups]


def _window_key(plan: AggregatePlan) -> object:
    """Equal for queries whose windows let them share a tree. If the unit of time is unknown, it is the window's
    text.
    """
    window = _window_of(plan)
    # Without a window nothing expires.
    return window and (plan.window_ticks or window.written, plan.query.emit_on_change)


def _window_of(plan: AggregatePlan) -> TimeWindow | None:
    window = plan.query.window
    assert window is None or isinstance(window, TimeWindow)
    return window


def _stage_plan(like: AggregatePlan, symbols: Sequence[Symbol], labels: Sequence[str]) -> AggregatePlan:
    """A plan to stage events: each symbol is a component, with its conditions and keys."""
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


def _rate(symbol: Symbol, statistics: Statistics, symbols: int) -> float:
    """The share of all events that a symbol has. Without statistics, all symbols have the same share."""
    if not statistics.rates or symbol.types is None:
        return 1.0 / symbols
    known = sum(statistics.rates.get(name, 0.0) for name in symbol.types)
    return (1 - RATES_UNKNOWN) * known + RATES_UNKNOWN / symbols


# ── What to share ──────────────────────────────────────────────────────────────────────────────────


def _tree(
    names: Sequence[str],
    like: AggregatePlan,
    patterns: Sequence[Sequence[tuple[int, ...]]],
    rates: Sequence[float],
    weighted: Collection[int],
) -> CounterTree:
    flat = [pattern for own in patterns for pattern in own]
    columns = [(query, column) for query, own in enumerate(patterns) for column in range(len(own))]
    # A sum is kept from its component on, even alone.
    alone = sum(updates(own, (), rates) for own in patterns)
    window = _window_of(like)
    is_invertible = window is not None and like.way is not Way.STACKS
    parts, segments = choose_segments(flat, rates, weighted, **({} if is_invertible else {"most": 0}))
    on_change = window is not None and like.query.emit_on_change
    shared = updates(parts, segments, rates)
    return CounterTree(tuple(names), window, on_change, parts, tuple(columns), segments, alone, shared)


def _lots(shared: SharedPlan) -> list[list[str]]:
    """Sets of queries in which each query has enough in common with the others and saves enough updates."""
    tree, rates = shared.tree, shared.rates
    by_query: list[list[tuple[Part, ...]]] = [[] for _ in tree.names]
    for (query, _), pattern in zip(tree.columns, tree.patterns, strict=True):
        by_query[query].append(pattern)
    lots: list[tuple[list[int], set[object]]] = []
    for query, patterns in enumerate(by_query):
        own: set[object] = {pattern[:COMMON_MIN] for pattern in patterns if len(pattern) >= COMMON_MIN}
        own |= {part for pattern in patterns for part in pattern if isinstance(part, SegmentPart)}
        touching = [lot for lot in lots if lot[1] & own]
        lots = [lot for lot in lots if not lot[1] & own]
        members = [query for lot in touching for query in lot[0]]
        lots.append(([*members, query], own.union(*(lot[1] for lot in touching))))
    return [
        [tree.names[query] for query in sorted(members)]
        for members, _ in lots
        if len(members) > 1 and _saves_enough([by_query[query] for query in members], tree.segments, rates)
    ]


def _saves_enough(
    by_query: Sequence[Sequence[tuple[Part, ...]]], segments: Sequence[tuple[int, ...]], rates: Sequence[float]
) -> bool:
    together = [pattern for patterns in by_query for pattern in patterns]
    used = {part.segment for pattern in together for part in pattern if isinstance(part, SegmentPart)}
    # Segments of other queries count nothing here.
    own = [segment if number in used else () for number, segment in enumerate(segments)]
    alone = sum(updates([_whole(pattern, segments) for pattern in patterns], (), rates) for patterns in by_query)
    return updates(together, own, rates) <= SHARED_MAX * alone


def _whole(pattern: Sequence[Part], segments: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """A pattern with its segments written out as symbols."""
    return tuple(
        symbol for part in pattern for symbol in (segments[part.segment] if isinstance(part, SegmentPart) else (part,))
    )


def sharing_lines(plans: Mapping[str, AggregatePlan], statistics: Statistics | None, off: Collection[str]) -> list[str]:
    """Lines of EXPLAIN: which queries are counted together, and why the others are not."""
    shared = plan_sharing(plans, statistics, off=off)
    lines = []
    for one in shared:
        lines += _tree_lines(one, one.tree)
    together = {name for one in shared for name in one.names}
    for name, plan in plans.items():
        if name not in together:
            lines.append(f"{name} is answered alone: {refusal(plan) or 'it has too little in common with the others'}")
    return lines


def _tree_lines(shared: SharedPlan, tree: CounterTree) -> list[str]:
    def named(symbols: Sequence[int]) -> str:
        return ", ".join(shared.stage.query.components[symbol].variable for symbol in symbols)

    span = f"within {tree.window.written or tree.window.ticks}" if tree.window else "since the start"
    keys = f", by {', '.join(part.label for part in shared.stage.key)}" if shared.stage.key else ""
    expiry = ", rows on expiry too" if tree.on_change else ""
    lines = [f"{_listed(tree.names)} share counters{keys}, {span}{expiry}"]
    for prefix, members in _common_prefixes(tree):
        lines.append(f"  ({named(prefix)}) is counted once for {_listed(members)}")
    for number, segment in enumerate(tree.segments):
        users = {
            tree.names[query]: None
            for (query, _), pattern in zip(tree.columns, tree.patterns, strict=True)
            if SegmentPart(number) in pattern
        }
        lines.append(f"  ({named(segment)}) is counted once and connected by snapshots for {_listed(list(users))}")
    lines.append(f"  {tree.shared_updates / tree.alone_updates:.0%} of the counter updates without sharing")
    return lines


def _common_prefixes(tree: CounterTree) -> list[tuple[list[int], list[str]]]:
    """The longest prefixes that several queries share."""
    found: dict[tuple[Part, ...], list[str]] = {}
    for (query, _), pattern in zip(tree.columns, tree.patterns, strict=True):
        for length in range(1, len(pattern) + 1):
            members = found.setdefault(pattern[:length], [])
            if tree.names[query] not in members:
                members.append(tree.names[query])
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

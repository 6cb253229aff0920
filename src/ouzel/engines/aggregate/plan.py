"""The plan of aggregates over matches (A-Seq), and its EXPLAIN: how matches are counted without building them, or why
they must be built.

`plan_aggregate` looks at the predicates that remain after predicates on single events and equivalence tests. If there
are none, or only simple ones, matches can be counted. Other queries build the matches and aggregate them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from ouzel.bind.model import (
    BOOL,
    INT,
    AggregateColumn,
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Component,
    Conjunct,
    Edge,
    Intrinsic,
    Kind,
    Length,
    Operation,
    OutputColumn,
    replaced,
)
from ouzel.bind.patterns import overlapping
from ouzel.bind.readings import linear
from ouzel.engines import Engine
from ouzel.engines.aggregate.tables import LENGTH_MAX, MeasureKind, Over, Way, indexed_atoms
from ouzel.errors import QueryError
from ouzel.lang.syntax import Strategy
from ouzel.plan.choose import make_plan
from ouzel.plan.diagram import label_of, window_of
from ouzel.plan.explain import Explanation, OperatorLine, explained, explanation, negation_lines, role_lines
from ouzel.plan.expressions import (
    IF_PRESENT,
    attribute_of,
    components_of,
    lacked_entirely,
    render,
    render_conjunct,
    walk,
)
from ouzel.plan.lowering import Domain, lower
from ouzel.plan.model import Note, Plan, Statistics, build
from ouzel.plan.rules import (
    EQUIVALENCE_INTO_KEY,
    NEGATION_INTO_CONSTRUCTION,
    PREDICATES_INTO_ROLES,
    SECOND_EQUIVALENCE,
    WINDOW_INTO_CONSTRUCTION,
    WINDOW_INTO_SCAN,
    WRITTEN_EQUALITIES,
    Rule,
    optimize,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ouzel.loss import LossModel
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import Operator, QueryOperator


COUNT_WITHOUT_MATCHES = "count_without_matches"
COUNT_BY_INVERSE = "count_by_inverse"
COUNT_BY_STACKS = "count_by_stacks"
COUNT_BY_INDEX = "count_by_index"
SHARE_COUNTERS = "share_counters"


class Form(Enum):
    """What a measure takes from the values of an expression."""

    VALUE = "value"
    PRESENCE = "presence"  # 1 if the expression is not null
    LEAST = "least"
    GREATEST = "greatest"


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """A value that counters keep in addition to the count."""

    form: Form
    expression: Bound
    component: int
    floating: bool
    over: Over

    @property
    def kind(self) -> MeasureKind:
        if self.form in (Form.LEAST, Form.GREATEST):
            return MeasureKind.LEAST
        return MeasureKind.FLOAT if self.form is Form.VALUE and self.floating else MeasureKind.INTEGER


@dataclass(frozen=True, slots=True)
class AggregatePlan(Plan):
    """A plan whose answer is aggregates. `way` is None if the plan `inner` builds the matches."""

    engine: ClassVar[str] = "aggregate"

    way: Way | None = None
    reason: str = ""
    measures: tuple[MeasureSpec, ...] = ()
    # The component whose events decide the group of a match; None if the key does, or if there are no groups.
    split: int | None = None
    inner: Plan | None = None
    # The plans of all readings, if a tree of counters counts them together: then no match is built by `inner`.
    readings: tuple[AggregatePlan, ...] = ()

    @property
    def matching(self) -> Plan:
        """The plan that finds the matches."""
        return self if self.inner is None else self.inner

    @property
    def counts_only(self) -> bool:
        """Whether matches are counted and not built."""
        return self.way is not None

    @property
    def needs_positions(self) -> bool:
        """Whether events that fill no component still have positions."""
        return self.inner is not None and self.inner.needs_positions

    def roles_of(self, component: Component) -> tuple[list[Conjunct], list[Conjunct]]:
        """(begin, take): the conditions for an event to begin a component, and to be a later event of a Kleene
        component.
        """
        return Plan.roles_of(self, component) if self.inner is None else self.inner.roles_of(component)

    @property
    def compares_events(self) -> bool:
        """Whether the counters test predicates between events, and so need the values that these compare."""
        return self.way in (Way.GRAPH, Way.INDEXED)

    @property
    def several_keys_a_group(self) -> bool:
        """Whether a group may have several keys. It cannot if groups are keys, or if the query has neither."""
        keys = {part.label for part in self.key}
        groups = {".".join(key.path) for key in self.query.group_by if key.path is not None}
        return self.split is not None or keys != groups


_TEXT = (Kind.STRING, Kind.BINARY)


def plan_aggregate(query: BoundQuery, statistics: Statistics, off: Collection[str]) -> AggregatePlan:
    """The plan of a query with AGG."""
    plan = _counted_plan(query, statistics, off)
    reason = obstacle(plan)
    if reason is None and COUNT_WITHOUT_MATCHES in off:
        reason = f"{COUNT_WITHOUT_MATCHES} is switched off"
    if reason is not None:
        inner = make_plan(matches_query(query), statistics, off=off)
        text = f"{reason}; the cost grows with the number of matches"
        built = replace(_as_aggregate_plan(plan, reason=text, inner=inner), notes=inner.notes)
        readings = _counted_readings(query, statistics, off) if query.readings else ()
        if not readings:
            return built
        text = "the readings are counted together in one tree of counters"
        together = Note(SHARE_COUNTERS, f"{len(readings)} readings are counted together")
        counted = replace(built, reason=text, readings=readings, measures=_measures(query))
        return replace(counted, notes=(*readings[0].notes, together))
    measures = _measures(query)
    split = _split(query)
    way, reason = _way(plan, measures, split, statistics, off)
    made = _as_aggregate_plan(plan, way=way, reason=reason, measures=measures, split=split)
    notes = [*made.notes, Note(COUNT_WITHOUT_MATCHES, "no match is built")]
    if way in (Way.INVERSE, Way.CUMULATIVE):
        notes.append(Note(COUNT_BY_INVERSE, "inverse matrices remove expired events"))
    if way is Way.STACKS:
        notes.append(Note(COUNT_BY_STACKS, "the counts of the window are products, kept in two stacks"))
    if way is Way.INDEXED:
        notes.append(Note(COUNT_BY_INDEX, "an index over the compared values replaces tests of pairs"))
    return replace(made, notes=tuple(notes))


def _counted_readings(query: BoundQuery, statistics: Statistics, off: Collection[str]) -> tuple[AggregatePlan, ...]:
    """The plan of each reading, if one tree of counters can count all of them; otherwise none."""
    from ouzel.engines.aggregate.sharing import may_share_tree

    arguments = [column.argument for column in query.aggregates if column.argument is not None]
    if (
        {COUNT_WITHOUT_MATCHES, SHARE_COUNTERS} & set(off)
        or query.strategy is not Strategy.SKIP_TILL_ANY_MATCH
        # A match that two readings find is counted once.
        or overlapping(query.readings, query.components)
        or query.has_nested
        # The value of an absent event must be null.
        or not all(isinstance(argument, Attribute | Intrinsic) for argument in arguments)
        or any(key.path is None for key in query.group_by)
    ):
        return ()
    plans = []
    for reading in linear(query):
        own = [column for column in reading.aggregates if isinstance(column.argument, Attribute | Intrinsic)]
        counted = AggregateColumn("matches", "count", None, INT)
        plan = plan_aggregate(replace(reading, aggregates=(counted, *own), having=None), statistics, off)
        if plan.way not in (Way.INVERSE, Way.CUMULATIVE, Way.UNBOUNDED):
            return ()
        plans.append(plan)
    return tuple(plans) if may_share_tree(plans) else ()


def _counted_plan(query: BoundQuery, statistics: Statistics, off: Collection[str]) -> Plan:
    """The plan of the sequences whose matches the counters count."""
    # Counters have their own windows and negations, and one composite key.
    never = [SECOND_EQUIVALENCE, WINDOW_INTO_SCAN, WINDOW_INTO_CONSTRUCTION, NEGATION_INTO_CONSTRUCTION]
    if query.readings or any(c.kleene for c in query.components):
        # A written equality with v[1] does not apply to the other events of v, nor one with v where v is absent.
        never.append(WRITTEN_EQUALITIES)
    return optimize(build(query), statistics, off=(*never, *off))


def _as_aggregate_plan(plan: Plan, **more: object) -> AggregatePlan:
    known = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    return AggregatePlan(**known, **more)  # type: ignore[arg-type]


def require_streamable(query: BoundQuery, off: Collection[str]) -> None:
    """Raise QueryError for an aggregate that would have to keep all events of an endless stream."""
    if not query.aggregates or query.window is not None:
        return
    plan = _counted_plan(query, Statistics(), off)
    reason = obstacle(plan)
    if reason is None and COUNT_WITHOUT_MATCHES in off:
        reason = f"{COUNT_WITHOUT_MATCHES} is switched off"
    if reason is None and plan.construction:
        reason = "a predicate compares new events with all earlier ones"
    if reason is not None:
        raise QueryError(
            f"query '{query.name}' has no WITHIN, so all events of a stream would have to be kept: {reason}",
            hint="add WITHIN with a duration, such as WITHIN 12 hours",
        )


# ── What must be built ─────────────────────────────────────────────────────────────────────────────


def obstacle(plan: Plan) -> str | None:
    """Why the matches of a query must be built; None if they can be counted without that."""
    query = plan.query
    if query.has_nested:
        return "a negated sequence forbids single matches"
    if query.readings:
        return "the pattern has several readings"
    several = len(query.positives) > 1 or any(c.kleene for c in query.positives)
    if query.strategy is not Strategy.SKIP_TILL_ANY_MATCH and several:
        return f"under {query.strategy.value} an event decides what happens to every run that reads it"
    if any(c.across for c in query.components):
        return "WITHOUT is checked on each finished match"
    if query.negated_end:
        return "a negated end is decided for each match when its window has passed"
    if query.sources not in ((), ("input",)):
        return "events that last may overlap, so they have no single order"
    between = [*plan.construction, *plan.selection, *(c for group in plan.forbidding.values() for c in group)]
    if any(conjunct.single_event for conjunct in between):
        return f"{PREDICATES_INTO_ROLES} is switched off"
    keys = {part.label for part in plan.key}
    if any(key.path is not None and ".".join(key.path) not in keys for key in query.group_by):
        return f"{EQUIVALENCE_INTO_KEY} is switched off"
    if between and not _on_edges(plan):
        named = sorted({c for conjunct in between for c in conjunct.components})
        variables = ", ".join(query.components[position].variable for position in named)
        return f"a predicate compares {variables}" if len(named) > 1 else f"a predicate compares events of {variables}"
    for component in query.positives:
        for test in query.equivalences:
            # Written out, such a test compares components, but not the events of a repetition with each other.
            covers = component.kleene and not lacked_entirely(query, component.position, test)
            if covers and ".".join(test.path) not in keys:
                return f"[{'.'.join(test.path)}] compares the events of {component.variable} with each other"
        if component.kleene and not _same_for_all(query.conjuncts, component.position):
            return f"{component.variable}[1] and {component.variable}[i] are tested differently"
    return _obstacle_in_columns(query)


def _on_edges(plan: Plan) -> bool:
    """Whether all predicates between events compare neighbours, so that pairs of events can be tested."""
    query = plan.query
    if plan.selection or any(plan.forbidding.values()) or any(c.kleene for c in query.positives):
        return False
    if _split(query) not in (None, query.positives[0].position):
        return False
    positions = {component.position: place for place, component in enumerate(query.positives)}
    for conjunct in plan.construction:
        places = sorted(positions[component] for component in conjunct.components)
        if len(places) != 2 or places[1] - places[0] != 1:
            return False
    if query.catalog.open:
        # Types are not known yet; they will be when the query runs.
        return True
    lowered = lower(plan)
    ranked = any(spec.domain is Domain.RANK for specs in lowered.lanes.ints.values() for spec in specs)
    return not lowered.residual and not ranked


def _is_indexed(plan: Plan) -> bool:
    """Whether all predicates between events compare an attribute of the first event with one of the second, at most one
    of them by order, and nothing else restricts matches.
    """
    query = plan.query
    if query.negatives or not 2 <= len(query.positives) <= LENGTH_MAX:
        return False
    parts = chain.from_iterable(walk(comparison) for c in plan.construction for comparison in c.comparisons)
    if any(isinstance(part, Attribute) and part.present_in is not None for part in parts):
        # A comparison that reads an attribute which the type lacks is true, whatever the value of the other event.
        return False
    first, second = (component.position for component in query.positives[:2])
    if any(conjunct.components != {first, second} for conjunct in plan.construction):
        return False
    if query.catalog.open:
        # As for edges: types are known when the query runs.
        operators = [_comparison_of_attributes(conjunct) for conjunct in plan.construction]
        return None not in operators and sum(operator != "=" for operator in operators) <= 1
    return indexed_atoms([one.alternatives for one in lower(plan).construction], first, second) is not None


def _comparison_of_attributes(conjunct: Conjunct) -> str | None:
    """The operator of a condition that compares two attributes by anything but <>; None for other conditions."""
    one = conjunct.comparisons[0]
    if len(conjunct.comparisons) != 1 or not isinstance(one, Operation):
        return None
    is_index = one.operator in ("=", "<", "<=", ">", ">=") and all(isinstance(x, Attribute) for x in one.operands)
    return one.operator if is_index else None


def _same_for_all(conjuncts: Sequence[Conjunct], position: int) -> bool:
    """Whether the first event of a component has the same conditions on single events as the later ones."""
    own = [c for c in conjuncts if c.components == frozenset((position,))]
    first = {tuple(_at_any(x) for x in c.comparisons) for c in own if c.edge is Edge.BEGIN}
    later = {tuple(_at_any(x) for x in c.comparisons) for c in own if c.edge is Edge.TAKE}
    return first == later


def _at_any(expression: Bound) -> Bound:
    """An expression without the information which event of a component it reads."""
    return replaced(expression, lambda reference: replace(reference, at=At.SINGLE))


def _obstacle_in_columns(query: BoundQuery) -> str | None:
    for column in query.aggregates:
        if column.argument is None:
            continue
        if any(isinstance(part, Length | Aggregation) for part in walk(column.argument)):
            return f"{column.name} reads all events of a component"
        if len(components_of(column.argument)) != 1:
            return f"{column.name} does not read exactly one event of a match"
        if column.function in ("min", "max") and column.argument.type.kind in _TEXT:
            return f"{column.name} compares text"
        if _over(column.argument) is None:
            return f"{column.name} mixes several events of one component"
    deciding = [key.expression for key in query.group_by if key.expression is not None]
    named = {component for expression in deciding for component in components_of(expression)}
    if deciding and (len(named) != 1 or any(not components_of(expression) for expression in deciding)):
        return "GROUP BY does not read exactly one event of a match"
    if named and query.components[next(iter(named))].kleene:
        return "GROUP BY reads an event of a component with +"
    return None


def _skipping_absent(argument: Bound) -> Bound:
    """An argument that is null if the type of an event lacks one of its attributes, so that aggregates skip the
    event.
    """
    lacking = any(isinstance(part, Attribute) and part.present_in is not None for part in walk(argument))
    if not lacking or isinstance(argument, Attribute):
        return argument
    return Operation(IF_PRESENT, (argument,), type=argument.type, span=argument.span)


def matches_query(query: BoundQuery) -> BoundQuery:
    """The same pattern, which returns what the aggregates and groups read, as columns group_0, …, value_0, …"""
    first = query.positives[0].position
    tests = {test.path: test for test in query.equivalences}
    columns = []
    for number, key in enumerate(query.group_by):
        expression = key.expression
        if expression is None:
            assert key.path is not None
            having = [c for c in query.positives if query.readings or c.position == first]
            values = [
                replace(attribute_of(query, c.position, tests[key.path]), at=At.FIRST if c.kleene else At.SINGLE)
                for c in having
            ]
            expression = values[0]
            if len(values) > 1:
                # All events of a match have the same value, and any of them may be absent.
                expression = Operation("coalesce", tuple(values), type=expression.type)
        columns.append(OutputColumn(f"group_{number}", expression))
    for number, column in enumerate(query.aggregates):
        if column.argument is not None:
            columns.append(OutputColumn(f"value_{number}", _skipping_absent(column.argument)))
    return replace(
        query,
        returns=tuple(columns),
        into=query.into or f"matches of {query.name}",
        aggregates=(),
        group_by=(),
        having=None,
        emit_on_change=False,
    )


# ── What is counted, and how ───────────────────────────────────────────────────────────────────────


def _over(expression: Bound) -> Over | None:
    """Which events of its component the argument of an aggregate reads; None if it reads several kinds, such as first
    and last.
    """
    found = {part.at for part in walk(expression) if isinstance(part, Attribute | Intrinsic)}
    if found <= {At.SINGLE, At.EVERY}:
        return Over.EVERY
    if found == {At.FIRST}:
        return Over.FIRST
    return Over.LAST if found == {At.LAST} else None


def _measures(query: BoundQuery) -> tuple[MeasureSpec, ...]:
    found: dict[MeasureSpec, None] = {}
    for column in query.aggregates:
        if column.argument is not None:
            found |= dict.fromkeys(measures_of(column.function, column.argument))
    return tuple(found)


@lru_cache(1024)  # Every answer asks this.
def measures_of(function: str, argument: Bound) -> tuple[MeasureSpec, ...]:
    """The measures that an aggregate needs: the number of values that are not null, and their sum, minimum or
    maximum.
    """
    (component,) = components_of(argument)
    over = _over(argument)
    assert over is not None
    is_null = Operation("is_null", (argument,), type=BOOL)
    present = MeasureSpec(Form.PRESENCE, Operation("not", (is_null,), type=BOOL), component, False, over)
    if function == "count":
        return (present,)
    form = {"min": Form.LEAST, "max": Form.GREATEST}.get(function, Form.VALUE)
    floating = argument.type.kind in (Kind.FLOAT, Kind.UNKNOWN)
    return (present, MeasureSpec(form, argument, component, floating, over))


def needed_measures(plan: AggregatePlan) -> dict[str, list[int]]:
    """For each aggregate over values, the numbers of the measures that it needs."""
    return {
        column.name: [plan.measures.index(measure) for measure in measures_of(column.function, column.argument)]
        for column in plan.query.aggregates
        if column.argument is not None and column.type.kind is not Kind.NULL
    }


def _split(query: BoundQuery) -> int | None:
    named = {c for key in query.group_by if key.expression is not None for c in components_of(key.expression)}
    return next(iter(named)) if named else None


# First events are rare if the other components together have at least so many events for each of them.
_RARE = 4


def _starts_rarely(query: BoundQuery, statistics: Statistics) -> bool:
    rates = [sum(statistics.rates.get(one, 0.0) for one in c.types) if c.types else 1.0 for c in query.positives]
    return bool(statistics.rates) and _RARE * rates[0] <= sum(rates[1:])


def _way(
    plan: Plan, measures: Sequence[MeasureSpec], split: int | None, statistics: Statistics, off: Collection[str]
) -> tuple[Way, str]:
    query = plan.query
    if plan.construction:
        if COUNT_BY_INDEX not in off and not measures and split is None and _is_indexed(plan):
            return Way.INDEXED, "predicates compare only the first two events: looked up by value"
        return Way.GRAPH, "predicates compare only neighbours: counted along the edges between events"
    others = query.negatives or any(c.kleene for c in query.positives) or len(query.positives) > LENGTH_MAX
    accumulates = query.window is not None and not measures and not others and COUNT_BY_INVERSE not in off
    per_start = None
    if split is not None:
        per_start = f"groups are decided by {query.components[split].variable}, not by a key"
        if accumulates:
            return Way.CUMULATIVE, f"{per_start}: a sum for each group, which inverse matrices complete"
    elif query.window is not None and plan.unguarded:
        per_start = "negative events forbid in every partition"
    elif query.window is not None and any(measure.over is not Over.EVERY for measure in measures):
        per_start = "an aggregate looks at one event of a component with +"
    if per_start is not None:
        return Way.PER_START, f"{per_start}: a row of counters for each first event in the window"
    if query.window is None:
        return Way.UNBOUNDED, "no window: one count for each prefix of the pattern, and nothing expires"
    if accumulates and _starts_rarely(query, statistics):
        return Way.CUMULATIVE, "first events are rare: only they are held, and inverse matrices complete their sum"
    plain = all(measure.kind is MeasureKind.INTEGER for measure in measures)
    invertible = plain and not query.negatives and not any(c.kleene for c in query.positives)
    if invertible and COUNT_BY_INVERSE not in off:
        return Way.INVERSE, "counts and integer sums: the oldest event is removed by its inverse matrix"
    if COUNT_BY_STACKS not in off:
        if query.components[0].negated:
            return Way.STACKS, "two stacks of products, for the first events between two negative ones at a time"
        return Way.STACKS, "two stacks of products: expired events cannot be subtracted here"
    return Way.PER_START, "one row of counters for each first event in the window, as in the paper"


# ── The engine ─────────────────────────────────────────────────────────────────────────────────────


class _Aggregate(Engine):
    rules = (
        Rule(COUNT_WITHOUT_MATCHES, "aggregates are counted without building matches (A-Seq)"),
        Rule(COUNT_BY_INVERSE, "inverse matrices remove expired events"),
        Rule(COUNT_BY_STACKS, "counts that have no inverse are kept in two stacks"),
        Rule(COUNT_BY_INDEX, "predicates between the first two events are looked up by value"),
        Rule(SHARE_COUNTERS, "queries count common parts once (A-Seq 4)"),
    )

    def applies(self, query: BoundQuery) -> bool:
        return bool(query.aggregates)

    def plan(
        self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None
    ) -> AggregatePlan:
        return plan_aggregate(query, statistics, off)

    def check_stream(self, query: BoundQuery, off: Collection[str]) -> None:
        require_streamable(query, off)

    def not_by_time(self, plan: AggregatePlan) -> str:
        if any(measure.floating for measure in plan.measures):
            return "sums of floats depend on the order in which they are added"
        return self._not_divided(plan)

    def not_by_key(self, plan: AggregatePlan) -> str:
        # Groups that end together have the order of their keys, in the whole stream.
        if plan.several_keys_a_group:
            return "a group may have events of several keys"
        return self._not_divided(plan)

    def _not_divided(self, plan: AggregatePlan) -> str:
        if plan.inner is not None:
            return "it counts matches that are built"
        if plan.query.emit_on_change:
            return "EMIT ON CHANGE follows the time of the whole stream"
        return plan.ends_with_an_event()

    def explain(self, plan: AggregatePlan) -> Explanation:
        return explain(plan)

    def explain_together(
        self, plans: Mapping[str, AggregatePlan], statistics: Statistics | None, off: Collection[str]
    ) -> list[str]:

        from ouzel.engines.aggregate.sharing import sharing_lines

        return sharing_lines(plans, statistics, off)

    def derived_schema(self, query: BoundQuery, layout: Layout) -> pa.Schema:
        from ouzel.engines.aggregate.output import aggregate_schema

        return aggregate_schema(query, layout)

    def operator(self, plan: AggregatePlan, layout: Layout, limits: Limits) -> QueryOperator:
        if plan.inner is not None:
            from ouzel.engines.aggregate.over_matches import MatchesOperator

            return MatchesOperator(plan, layout, limits)
        from ouzel.engines.aggregate.operator import AggregateOperator

        return AggregateOperator(plan, layout, limits)

    def operators(
        self,
        plans: Mapping[str, AggregatePlan],
        layouts: Mapping[str, Layout],
        limits: Limits,
        statistics: Statistics,
        off: Collection[str],
        *,
        partial: bool = False,
        together: Sequence[Sequence[str]] | None = None,
    ) -> list[Operator]:
        if partial:
            from ouzel.engines.aggregate.operator import AggregateOperator

            return [AggregateOperator(plan, layouts[n], limits, partial=True) for n, plan in plans.items()]
        from ouzel.engines.aggregate.sharing import plan_sharing, shared_plan, shared_readings

        if together is None:
            shared = plan_sharing(plans, statistics, off=off)
        else:
            several = [{name: plans[name] for name in names} for names in together if len(names) > 1]
            shared = tuple(shared_plan(own, statistics) for own in several)
        made: list[Operator] = []
        for one in shared:
            from ouzel.engines.aggregate.shared import SharedOperator

            made.append(SharedOperator(one, layouts[one.names[0]], limits))
        for name, plan in plans.items():
            if plan.readings:
                from ouzel.engines.aggregate.shared import SharedOperator

                readings = shared_readings(plan, statistics)
                made.append(SharedOperator(readings, layouts[name], limits))
                shared = (*shared, readings)
        taken = {name for one in shared for name in one.names}
        alone = {name: plan for name, plan in plans.items() if name not in taken}
        return made + super().operators(alone, layouts, limits, statistics, off)


ENGINE = _Aggregate()


NAMES = {
    Way.UNBOUNDED: "counters, without a window",
    Way.INVERSE: "counters, by inverse matrices",
    Way.STACKS: "counters, by two stacks of products",
    Way.PER_START: "counters, a row for each first event",
    Way.GRAPH: "counters, along the edges between events",
    Way.INDEXED: "counters, with an index over the first two events",
    Way.CUMULATIVE: "counters, by inverse matrices and a sum for each group",
}
_COSTS = {
    Way.UNBOUNDED: "a step for each event",
    Way.INVERSE: "as many steps for each event as the pattern is long",
    Way.STACKS: "as many steps for each event, on average, as the pattern is long",
    Way.PER_START: "as many steps for each event as its key has first events in the window",
    Way.CUMULATIVE: "as many steps for each event as the pattern is long, and for each row of a group",
    Way.INDEXED: "a search in the index for each first and each second event; as many steps as the pattern is long",
    Way.GRAPH: "for each completing event as many steps as its key has pairs of neighbours in the window, at worst",
}


def explain(plan: AggregatePlan) -> Explanation:
    """Describe how matches are counted, or how they are built and then aggregated."""
    if plan.readings:
        assert plan.readings[0].way is not None
        kernel, because = NAMES[plan.readings[0].way], plan.reason
        counted = tuple(
            f"count the prefixes of {', '.join(label_of(c) for c in reading.positives)}; no match is built"
            for reading in plan.readings
        )
        lines = [OperatorLine("roles", tuple(role_lines(plan))), OperatorLine("counters", counted)]
    elif plan.way is None:
        found = explanation(plan.matching)
        kernel, because = f"{found.kernel}, and adding up", f"matches are built: {plan.reason}"
        lines = list(found.operators[:-1])
    else:
        kernel, because = NAMES[plan.way], plan.reason
        lines = [OperatorLine("roles", tuple(role_lines(plan))), OperatorLine("counters", counting_lines(plan))]
        if plan.negatives:
            lines.append(OperatorLine("negation", tuple(negation_lines(plan)[: len(plan.negatives)])))
    return explained(plan, kernel, because, [*lines, OperatorLine("aggregation", aggregation_lines(plan))])


def counting_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """How the counters process events."""
    assert plan.way is not None
    lines = [f"count the prefixes of {', '.join(label_of(c) for c in plan.positives)}; no match is built"]
    if plan.key:
        lines.append(f"by {', '.join(part.label for part in plan.key)}")
    if plan.split is not None:
        lines.append(f"and by the group of each {label_of(plan.query.components[plan.split])}")
    lines += [f"test {render_conjunct(plan.query, conjunct)}" for conjunct in plan.construction]
    window = window_of(plan.query)
    if window is not None:
        lines.append(f"within {window}, counted from the first event")
    elif plan.key or plan.split is not None:
        lines.append("without WITHIN no key expires: there are counts for every key seen (max_buffered_events)")
    lines.append(_COSTS[plan.way])
    return tuple(lines)


def aggregation_lines(plan: AggregatePlan) -> tuple[str, ...]:
    """Which rows are emitted, and when."""
    query = plan.query
    shown = []
    for column in query.aggregates:
        argument = "" if column.argument is None else f"({render(query, column.argument)})"
        hidden = ", for HAVING only" if column.hidden else ""
        shown.append(f"{column.function.upper()}{argument} AS {column.name}{hidden}")
    groups = [key.name for key in query.group_by]
    where = f"for each {', '.join(groups)}" if groups else "one total"
    if not groups and plan.key:
        where += " over all keys"
    when = "whenever a match completes" + (" or leaves the window" if query.emit_on_change else "")
    lines = [*shown, f"{where}, {when}"]
    if query.having is not None:
        lines.append(f"having {render(query, query.having)}")
    return tuple(lines)

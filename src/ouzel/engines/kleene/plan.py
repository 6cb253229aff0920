"""The plan of a query that runs on NFA^b (Kleene closure, selection strategies, windows in events, forms of output),
and its EXPLAIN.

A run plan has three parts that other plans lack. It has the conditions for an event to be taken as v[i], and the chosen
kernel with the reason. It also has the [attr] tests that cannot partition the stream, because a type lacks the
attribute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    Component,
    Conjunct,
    Constant,
    Edge,
    EquivalenceTest,
    EventWindow,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Scope,
    Type,
)
from ouzel.engines import Engine
from ouzel.engines.kleene.tables import LAYERS_MAX, NO_MOST
from ouzel.lang.syntax import OutputForm, Strategy
from ouzel.plan.diagram import window_of
from ouzel.plan.explain import (
    Explanation,
    OperatorLine,
    explained,
    key_labels,
    negation_lines,
    role_lines,
    transformation_line,
)
from ouzel.plan.expressions import attribute_of, fixed_value, lacked_entirely, not_null, walk
from ouzel.plan.model import KeyPart, Note, Plan, Statistics
from ouzel.plan.rules import EQUIVALENCE_INTO_KEY, PREDICATES_INTO_ROLES, WRITTEN_EQUALITIES, Rule

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


SHARE_GRAPH = "share_graph"
MERGE_RUNS = "merge_runs"
# The forms of output that take effect after the kernel has found every match.
_ALL_LISTED = (OutputForm.ALL, OutputForm.COMPRESSED, OutputForm.LATEST)


class RunKernel(Enum):
    """How partial matches are kept."""

    RUNS = "runs"  # each one separately
    GRAPH = "graph"  # all of them in one graph of events


@dataclass(frozen=True, slots=True)
class RunPlan(Plan):
    """A plan for the kernels of runs and graphs. `roles[k]` are the conditions for an event to begin component k or,
    for a negative component, to forbid matches.
    """

    engine: ClassVar[str] = "kleene"
    has_runs: ClassVar[bool] = True

    # Single-event conjuncts that an event must satisfy to be taken as v[i], by component position.
    later_roles: Mapping[int, tuple[Conjunct, ...]] = field(default_factory=dict)
    kernel: RunKernel = field(default_factory=lambda: RunKernel.RUNS)
    # [attr] tests that are compared event by event: a component's type lacks the attribute, or they are not a key.
    coded: tuple[EquivalenceTest, ...] = ()
    # [attr] tests whose values partition the events.
    partitioning: tuple[EquivalenceTest, ...] = ()
    # Written equalities that are hashed like [attr] tests, though the language does not call them a partition.
    hashed: tuple[EquivalenceTest, ...] = ()
    # Runs with the same future are merged (SASE+ 5.2.2).
    merge: bool = True
    reason: str = ""

    @property
    def needs_positions(self) -> bool:
        """Whether events that fill no component still have positions."""
        return _positions_matter(self.query)

    def roles_of(self, component: Component) -> tuple[list[Conjunct], list[Conjunct]]:
        """(begin, take): the conditions for an event to begin a component, and to be a later event of a Kleene
        component.
        """
        return list(self.roles[component.position]), list(self.later_roles.get(component.position, ()))


def needs_runs(query: BoundQuery) -> str | None:
    """Why a query cannot run on the stacks of the sequence engine; None if it can.

    >>> from ouzel import query
    >>> from ouzel.bind.model import Catalog
    >>> needs_runs(query("PATTERN SEQ(A+ a[], B b) WITHIN 5").bind(Catalog()))
    'a[] binds several events'
    """
    kleene = next((c for c in query.components if c.kleene), None)
    if kleene is not None:
        return f"{kleene.variable}[] binds several events"
    if query.strategy is not Strategy.SKIP_TILL_ANY_MATCH and len(query.positives) > 1:
        return f"under {query.strategy.value} an event decides what happens to every run that reads it"
    if isinstance(query.window, EventWindow):
        return "the window counts events"
    if query.output.form is OutputForm.COMPRESSED:
        return "OUTPUT COMPRESSED gives a graph of the matches"
    if query.output.form is OutputForm.LATEST:
        return "OUTPUT LATEST chooses among the matches of each last event"
    if query.output.form is not OutputForm.ALL:
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} drops partial matches as soon as one completes"
    return None


def build_runs(query: BoundQuery, reason: str, off: Collection[str] = ()) -> RunPlan:
    """Build the plan: conjuncts on one event become roles, [attr] tests become the partition key, and the other
    conjuncts become tests on edges. `off` names the rules that are switched off.
    """
    roles: dict[int, list[Conjunct]] = {c.position: [] for c in query.components}
    later: dict[int, list[Conjunct]] = {c.position: [] for c in query.components if c.kleene}
    forbidding: dict[int, list[Conjunct]] = {c.position: [] for c in query.negatives}
    on_edges: list[Conjunct] = []
    for test in query.equivalences:
        for component in query.components:
            if lacked_entirely(query, component.position, test):
                continue
            own = [not_null(query, component.position, test)]
            if test.value is not None:
                own.append(fixed_value(query, component.position, test))
            roles[component.position] += own
            if component.kleene:
                later[component.position] += own
    moved = 0
    for conjunct in query.conjuncts:
        if conjunct.single_event and (PREDICATES_INTO_ROLES not in off or _positions_matter(query)):
            position = next(iter(conjunct.components))
            (later if conjunct.edge is Edge.TAKE else roles)[position].append(conjunct)
            moved += 1
        elif conjunct.negative is not None:
            forbidding[conjunct.negative].append(conjunct)
        else:
            on_edges.append(conjunct)
    positives = {c.position for c in query.positives}
    keyed = [test for test in query.equivalences if not any(test.lacked_by.get(position) for position in positives)]
    if EQUIVALENCE_INTO_KEY in off and not _partitions_matter(query):
        keyed = []
    # A negative that one test leaves out forbids in every partition, so its events are compared by the other tests.
    lacking = any(any(test.lacked_by.values()) for test in query.equivalences)
    coded = list(query.equivalences) if lacking or len(keyed) < len(query.equivalences) else []
    key = []
    for test in keyed:
        covered = [c.position for c in query.components if not test.lacked_by.get(c.position)]
        key.append(KeyPart(".".join(test.path), test.type, {p: attribute_of(query, p, test) for p in covered}))
    notes = []
    if moved and not _positions_matter(query):
        text = f"{moved} single-event predicate{'' if moved == 1 else 's'} decided before the runs"
        notes.append(Note(PREDICATES_INTO_ROLES, text))
    if key and not _partitions_matter(query):
        notes.append(Note(EQUIVALENCE_INTO_KEY, f"partitioned by {', '.join(part.label for part in key)}"))
    hashed = []
    if WRITTEN_EQUALITIES not in off and not coded and _may_hash(query):
        for test in _written_equalities(query, on_edges):
            part = _key_part(query, test, forbidding)
            if part is None:
                continue
            hashed.append(test)
            key.append(part)
            for position in part.expressions:
                roles[position].append(not_null(query, position, test))
                if position in later:
                    later[position].append(not_null(query, position, test))
    if hashed:
        implied = [(test.path, test.type) for test in hashed]
        on_edges = [conjunct for conjunct in on_edges if _equal_attributes(conjunct) not in implied]
        for position, conjuncts in forbidding.items():
            # A negative that some key part leaves out forbids in every partition, and is tested for the other parts.
            if all(position in part.expressions for part in key):
                forbidding[position] = [c for c in conjuncts if _equal_attributes(c) not in implied]
        labels = "; ".join(part.label for part in key[-len(hashed) :])
        notes.append(Note(WRITTEN_EQUALITIES, f"hashed by {labels}"))
    obstacle = _obstacle_to_graph(query, on_edges)
    if coded:
        cause = "types lack attributes that [attr] tests name"
        obstacle = cause if lacking else f"{EQUIVALENCE_INTO_KEY} is switched off"
    if obstacle is None and SHARE_GRAPH in off:
        obstacle = f"{SHARE_GRAPH} is switched off"
    # As in the kernel: only if runs are independent and every match is wanted.
    any_match = query.strategy is Strategy.SKIP_TILL_ANY_MATCH
    merge = (
        MERGE_RUNS not in off
        and not (any_match and obstacle is None)
        and query.output.form in _ALL_LISTED
        and (not query.negatives or (not any_match and _checks_negation_late(query, forbidding, coded)))
    )
    if merge:
        notes.append(Note(MERGE_RUNS, "runs with the same future are merged"))
    if obstacle is None:
        notes.append(Note(SHARE_GRAPH, "all choices share one graph of events"))
        reason += "; no predicate looks at more than two neighbouring events, so all choices share one graph"
    elif query.strategy is Strategy.SKIP_TILL_ANY_MATCH:
        reason += f"; every choice is a separate run, because {obstacle}"
    return RunPlan(
        query=query,
        roles={position: tuple(conjuncts) for position, conjuncts in roles.items()},
        later_roles={position: tuple(conjuncts) for position, conjuncts in later.items()},
        key=tuple(key),
        coded=tuple(coded),
        partitioning=tuple(keyed),
        hashed=tuple(hashed),
        construction=tuple(on_edges),
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
        window_in_scan=True,
        window_in_construction=True,
        notes=tuple(notes),
        kernel=RunKernel.GRAPH if obstacle is None else RunKernel.RUNS,
        merge=merge,
        reason=reason,
    )


def _checks_negation_late(
    query: BoundQuery, forbidding: Mapping[int, Sequence[Conjunct]], coded: Sequence[EquivalenceTest]
) -> bool:
    """Whether negation can be tested on complete matches, because only the events of a match decide it. Then runs may
    be merged before.
    """
    parts = [
        part for conjuncts in forbidding.values() for c in conjuncts for one in c.comparisons for part in walk(one)
    ]
    return (
        query.output.form in (OutputForm.ALL, OutputForm.LATEST)
        and not coded
        and not query.negated_end
        and not any(
            isinstance(part, Length | Aggregation) or (isinstance(part, Attribute | Intrinsic) and part.at in _EVERY_I)
            for part in parts
        )
    )


def _positions_matter(query: BoundQuery) -> bool:
    """Whether the answer depends on the positions of all events of the stream. If so, roles are part of the meaning,
    because simultaneous events that may fill a component come before those that may not.
    """
    return query.is_strict or query.is_partition_contiguous or isinstance(query.window, EventWindow)


def _partitions_matter(query: BoundQuery) -> bool:
    """Whether the answer depends on the partitions, because something counts or chooses events or matches within each.
    Otherwise they only make the search faster.
    """
    return _positions_matter(query) or query.output.form is not OutputForm.ALL


def _may_hash(query: BoundQuery) -> bool:
    """Whether equal values may divide runs as a partition key would. That needs that nothing counts or chooses within
    partitions, and that a run may skip events with other values.
    """
    return len(query.positives) > 1 and not _partitions_matter(query)


def _written_equalities(query: BoundQuery, conjuncts: Sequence[Conjunct]) -> list[EquivalenceTest]:
    """The attributes that equality conditions in WHERE make equal in all positive events.

    For that, every edge except the first must compare the event that is read with an event bound before. A conjunct
    that can be tested only at a later component does not count, because the run has already taken the event.
    """
    tested: dict[tuple[tuple[str, ...], Type], set[tuple[int, Edge]]] = {}
    for conjunct in conjuncts:
        attribute = _equal_attributes(conjunct)
        if attribute is not None and conjunct.negative is None and not _is_delayed(conjunct):
            tested.setdefault(attribute, set()).add((conjunct.tested_at, conjunct.edge))
    wanted = {(c.position, Edge.BEGIN) for c in query.positives[1:]}
    wanted |= {(c.position, Edge.TAKE) for c in query.positives if c.kleene}
    return [EquivalenceTest(path, type_, None, {}) for (path, type_), edges in tested.items() if edges >= wanted]


def _key_part(query: BoundQuery, test: EquivalenceTest, forbidding: Mapping[int, Sequence[Conjunct]]) -> KeyPart | None:
    """The partition key that equality conditions imply; None if some event would need two keys."""
    if len({attributes[test.path[0]] for attributes in _known(query) if test.path[0] in attributes}) > 1:
        # Types that the query does not name may have another type of value there.
        return None
    equal = [c.position for c in query.positives]
    positive_types = {name for c in query.positives for name in c.types or ()}
    for negative in query.negatives:
        if any(
            _equal_attributes(conjunct) == (test.path, test.type)
            and not any(isinstance(part, Attribute) and part.at in _EVERY_I for part in walk(conjunct.comparisons[0]))
            for conjunct in forbidding[negative.position]
        ):
            equal.append(negative.position)
        elif (
            query.equivalences
            or negative.types is None
            or any(c.types is None for c in query.positives)
            or not positive_types.isdisjoint(negative.types)
        ):
            # It forbids with any value, and its event may also be bound, or has another value to compare.
            return None
    label = " = ".join(f"{c.variable}.{'.'.join(test.path)}" for c in query.positives)
    return KeyPart(label, test.type, {position: attribute_of(query, position, test) for position in sorted(equal)})


def _known(query: BoundQuery) -> list[Mapping[str, Type]]:
    return [*(query.catalog.declared or {}).values(), query.catalog.common or {}]


def _equal_attributes(conjunct: Conjunct) -> tuple[tuple[str, ...], Type] | None:
    """(path, type) of the attribute that a conjunct makes equal in two events; None if the conjunct says anything
    else.
    """
    if len(conjunct.comparisons) != 1:
        return None
    comparison = conjunct.comparisons[0]
    if not isinstance(comparison, Operation) or comparison.operator != "=":
        return None
    left, right = comparison.operands
    if not isinstance(left, Attribute) or not isinstance(right, Attribute):
        return None
    if left.present_in is not None or right.present_in is not None or left.type.kind is Kind.UNKNOWN:
        return None
    return (left.path, left.type) if (left.path, left.type) == (right.path, right.type) else None


def _is_delayed(conjunct: Conjunct) -> bool:
    """Whether a comparison must wait: neither side is the event that is read, or not every run has bound the other
    side.
    """
    sides = [part for comparison in conjunct.comparisons for part in walk(comparison) if isinstance(part, Attribute)]
    read = (At.SINGLE, At.FIRST) if conjunct.edge is Edge.BEGIN else (At.CURRENT,)
    is_read = [part.component == conjunct.tested_at and part.at in read for part in sides]
    others = [part for part, one in zip(sides, is_read, strict=True) if not one]
    return sum(is_read) != 1 or any(part.component != conjunct.tested_at and part.at in _EVERY_I for part in others)


# For an earlier component these name each event, or each except the last, so none if it has one event.
_EVERY_I = (At.CURRENT, At.PREVIOUS)


def _obstacle_to_graph(query: BoundQuery, conjuncts: Sequence[Conjunct]) -> str | None:
    """Why the graph kernel cannot run a query; None if it can."""
    if query.strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        return f"{query.strategy.value} decides for each run by itself"
    positions = [component.position for component in query.positives]
    if query.output.form not in _ALL_LISTED:
        form = query.output.form.value.replace("_", " ")
        if isinstance(query.window, EventWindow):
            return f"OUTPUT {form} chooses among them, and each has its own window"
        # A match of one event is the only one that starts with it.
        is_single = len(positions) == 1 and not query.components[positions[0]].kleene
        if query.output.component == positions[0] and not is_single:
            return f"OUTPUT {form} of the first component chooses among all of them"
    if query.negatives:
        if any(c.across for c in query.negatives):
            return "WITHOUT is checked on each finished match"
        if query.components[0].negated or query.negated_end:
            return "a negation at the start or end is checked on each finished match"
        if isinstance(query.window, EventWindow):
            return "negation is checked on each finished match"
        for conjunct in query.conjuncts:
            if conjunct.negative is not None and not _is_between_neighbours(query, conjunct):
                return "negation compares events that are not its neighbours"
    for conjunct in conjuncts:
        place = positions.index(conjunct.tested_at)
        before = query.positives[place - 1] if place else None
        for comparison in conjunct.comparisons:
            for part in walk(comparison):
                if _is_length(part, conjunct.tested_at) and _is_layered(query, conjunct):
                    continue
                if isinstance(part, Length | Aggregation):
                    variable = query.components[part.component].variable
                    return f"a predicate depends on all events of {variable}[]"
                if isinstance(part, Attribute | Intrinsic) and not _is_neighbour(part, conjunct, before):
                    return "a predicate compares events that need not be neighbours"
    return None


def _is_neighbour(part: Attribute | Intrinsic, conjunct: Conjunct, before: Component | None) -> bool:
    """Whether a term reads only the event that is read or the event bound directly before it."""
    if part.component == conjunct.tested_at:
        return (
            part.at
            in {
                Edge.BEGIN: (At.SINGLE, At.FIRST),
                Edge.TAKE: (At.CURRENT, At.PREVIOUS),
                Edge.PROCEED: (At.LAST,),
            }[conjunct.edge]
        )
    if conjunct.edge is not Edge.BEGIN or before is None or part.component != before.position:
        return False
    return part.at is (At.LAST if before.kleene else At.SINGLE)


def _is_between_neighbours(query: BoundQuery, conjunct: Conjunct) -> bool:
    """Whether a conjunct on a negative event otherwise reads only the events bound directly before and after it."""
    assert conjunct.negative is not None
    before = max(c.position for c in query.positives if c.position < conjunct.negative)
    after = min(c.position for c in query.positives if c.position > conjunct.negative)
    named = {conjunct.negative: At.SINGLE, before: At.SINGLE, after: At.SINGLE}
    if query.components[before].kleene:
        named[before] = At.LAST
    if query.components[after].kleene:
        named[after] = At.FIRST
    for comparison in conjunct.comparisons:
        for part in walk(comparison):
            if isinstance(part, Length | Aggregation):
                return False
            if isinstance(part, Attribute | Intrinsic) and named.get(part.component) is not part.at:
                return False
    return True


# ── Bounds on the number of events ─────────────────────────────────────────────────────────────────


def _is_layered(query: BoundQuery, conjunct: Conjunct) -> bool:
    """Whether the graph knows the number of events at the component where a conjunct is tested: it must have a small
    bound.
    """
    return conjunct.edge is Edge.PROCEED and most_events(query, conjunct.tested_at) <= LAYERS_MAX


def most_events(query: BoundQuery, component: int) -> int:
    """The largest number of events that the conjuncts on a component's length allow; NO_MOST if they set no bound.

    >>> from ouzel import query
    >>> from ouzel.bind.model import Catalog
    >>> most_events(query("PATTERN SEQ(A+ a[], B b) WHERE a.LEN < 4 AND a.LEN >= 2 WITHIN 5").bind(Catalog()), 0)
    3
    """
    if not query.components[component].kleene:
        return NO_MOST
    bounds = [
        max(_most(comparison, component) for comparison in conjunct.comparisons)
        for conjunct in query.conjuncts
        if conjunct.edge is Edge.PROCEED and conjunct.tested_at == component and conjunct.negative is None
    ]
    return max(1, min(bounds, default=NO_MOST))


_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _most(condition: Bound, component: int) -> int:
    """The largest length for which a condition may hold."""
    if not isinstance(condition, Operation):
        return NO_MOST
    operator, operands = condition.operator, condition.operands
    if operator in ("and", "or"):
        bounds = [_most(operand, component) for operand in operands]
        return min(bounds) if operator == "and" else max(bounds)
    if operator == "in" and _is_length(operands[0], component):
        return max(_number(operand) for operand in operands[1:])
    if operator not in _MIRRORED:
        return NO_MOST
    left, right = operands
    if _is_length(right, component):
        left, right, operator = right, left, _MIRRORED[operator]
    if not _is_length(left, component) or operator in (">", ">="):
        return NO_MOST
    most = _number(right)
    return most - 1 if operator == "<" and most < NO_MOST else most


def _is_length(expression: Bound, component: int) -> bool:
    """Whether an expression is v.LEN or count(v[])."""
    if isinstance(expression, Aggregation):
        counts = expression.function == "count" and expression.operand is None and expression.scope is Scope.ALL
        return counts and expression.component == component
    return isinstance(expression, Length) and expression.component == component


def _number(expression: Bound) -> int:
    """The value of an integer constant up to NO_MOST; NO_MOST for any other expression."""
    value = expression.value if isinstance(expression, Constant) else None
    return min(value, NO_MOST) if type(value) is int else NO_MOST


# ── The engine ─────────────────────────────────────────────────────────────────────────────────────


class _Kleene(Engine):
    rules = (
        Rule(SHARE_GRAPH, "all choices of skip_till_any_match share one graph"),
        Rule(MERGE_RUNS, "runs with the same future are merged (SASE+ 5.2.2)"),
    )

    def applies(self, query: BoundQuery) -> bool:
        return needs_runs(query) is not None

    def plan(self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None) -> RunPlan:
        return build_runs(query, needs_runs(query) or "", off)

    def not_by_time(self, plan: RunPlan) -> str:
        if plan.query.output.form is not OutputForm.ALL:
            return f"output {plan.query.output.form.value} chooses among matches"
        if plan.kernel is RunKernel.RUNS and (plan.construction or plan.coded):
            # Runs that are found by the values they compare with are read in an order that depends on their number.
            return "conditions between events decide the order of runs"
        return plan.ends_with_an_event()

    def not_by_key(self, plan: RunPlan) -> str:
        return "events between those of a match count" if plan.needs_positions else self.not_by_time(plan)

    def explain(self, plan: RunPlan) -> Explanation:
        return explain(plan)

    def operator(self, plan: RunPlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.kleene.operator import KleeneOperator

        return KleeneOperator(plan, layout, limits)


ENGINE = _Kleene()


def explain(plan: RunPlan) -> Explanation:
    """Describe how NFA^b runs a plan: its automaton with the tests on each edge, and its kernel."""
    reading = ["every event is shown to the runs of its partition"]
    if plan.key:
        reading[0] += f", by {key_labels(plan)}"
    if plan.coded:
        labels = ", ".join(".".join(test.path) for test in plan.coded)
        lacked = any(any(test.lacked_by.values()) for test in plan.coded)
        reading.append(f"[{labels}] is compared between events" + (", since a type lacks it" if lacked else ""))
    if plan.needs_positions:
        counted = "their partition" if plan.key and not plan.query.is_strict else "the whole stream"
        reading.append(f"events that fill no component count too, in {counted}")
    window = window_of(plan.query)
    if window is not None:
        reading.append(f"runs that have left the window of {window} end")
    if isinstance(plan.query.window, EventWindow) and plan.key:
        reading.append(
            "a window counts the events of its key: every key seen keeps its last ones (max_buffered_events)"
        )
    lines = [OperatorLine("roles", tuple(role_lines(plan))), OperatorLine("runs", tuple(reading))]
    if plan.negatives:
        lines.append(OperatorLine("negation", tuple(negation_lines(plan))))
    lines.append(OperatorLine("transformation", (transformation_line(plan),)))
    return explained(plan, plan.kernel.value, plan.reason, lines)

"""Plans linear-plus expressions as automata (CESAR 3.2): branches of a bound stream become places, edges and
predicates. EXPLAIN shows the automata as the paper's figures do, with forward, filter and rebind edges.

Every predicate is put into disjunctive form. The static part of a conjunct reads only the event. For one query it is a
single lane that says whether the event passes. For many queries it is ranges over lanes, which an index can find. The
part that also reads the instance is a program. Bounds on DUR are kept as numbers, because they limit how long an
instance may wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ouzel.algebra.model import (
    CURRENT,
    PARAMETERS,
    REGISTERS,
    BoundAlgebra,
    Branch,
    Iteration,
    Operator,
    Source,
    Step,
    duration,
    moved,
)
from ouzel.algebra.normal_form import normal_form
from ouzel.bind.model import (
    BOOL,
    INT,
    Attribute,
    Bound,
    Constant,
    EventField,
    Intrinsic,
    Kind,
    Operation,
    Type,
    rewritten,
)
from ouzel.bind.normal_form import with_not_pushed_in
from ouzel.engines import Engine
from ouzel.engines.automata.tables import ProgramTable
from ouzel.errors import QueryError
from ouzel.kernels.arrays import INT64_MAX, INT64_MIN
from ouzel.kernels.predicate_tables import Instruction, Lane, Opcode
from ouzel.plan.diagram import Arrow, Automaton, State
from ouzel.plan.explain import Explanation, OperatorLine
from ouzel.plan.expressions import CHUNK, CHUNKS_MAX, components_of, like_prefix, render
from ouzel.plan.lowering import Domain, Inexpressible, LaneSpec, program_of
from ouzel.plan.model import Plan, Statistics

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


CONJUNCTS_MAX = 16
ITEMS_MAX = 8
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_RANGED = frozenset({Kind.INT, Kind.FLOAT, Kind.BOOL, Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL, Kind.DURATION})


# ── Lanes ──────────────────────────────────────────────────────────────────────────────────────────


class Form(Enum):
    """How the values of a lane become numbers."""

    INT = "int"
    FLOAT = "float"
    CODE = "code"  # text; equal codes mean equal values
    RANK = "rank"  # text; ranks have the order of the values
    ORDERED = "ordered"  # a float as an integer of the same order
    TRUTH = "truth"  # 1 if all conditions hold
    TYPE = "type"  # the code of the event's type
    CONTENT = "content"  # equal for events of one end that no later test can distinguish


class EventLane(NamedTuple):
    """A value of an event, for kernels. `source` is the source whose events have it; None: all events."""

    source: Source | None
    form: Form
    expressions: tuple[Bound, ...]


_FORM_OF_DOMAIN = {Domain.INT: Form.INT, Domain.FLOAT: Form.FLOAT, Domain.CODE: Form.CODE, Domain.RANK: Form.RANK}


@dataclass
class EventLanes:
    """The different lanes of events. int64 and float64 lanes are numbered separately."""

    ints: list[EventLane] = field(default_factory=list)
    floats: list[EventLane] = field(default_factory=list)
    _numbers: dict[EventLane, int] = field(default_factory=dict)

    def number(self, lane: EventLane) -> int:
        if lane not in self._numbers:
            known = self.floats if lane.form is Form.FLOAT else self.ints
            self._numbers[lane] = len(known)
            known.append(lane)
            if lane.form is Form.RANK:
                # Ranks change with new texts; they are computed again from the codes.
                self.number(lane._replace(form=Form.CODE))
        return self._numbers[lane]


# ── Predicates taken apart ─────────────────────────────────────────────────────────────────────────


class StaticAtom(NamedTuple):
    """A comparison of a lane with a constant of the query. The expression `constant` reads only parameters and
    literals.
    """

    lane: EventLane
    operator: str
    constant: Bound
    # A test that nearly every event passes, so no key of an index.
    weak: bool = False
    # A condition on parameters: queries for which it holds do not make this test.
    unless: Bound | None = None


class DurationBound(NamedTuple):
    """A comparison of DUR with a constant of the query."""

    operator: str
    constant: Bound


@dataclass(frozen=True, slots=True)
class PlannedConjunct:
    static: tuple[StaticAtom, ...] = ()
    durations: tuple[DurationBound, ...] = ()
    programs: tuple[int, ...] = ()
    # Conditions on the query's parameters alone.
    enabled: tuple[Bound, ...] = ()
    # `event = instance` over integers or texts, by which instances can be found: lane, component, its lane.
    key: tuple[int, int, int] | None = None
    key_program: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedEdge:
    source: int
    target: int
    conjuncts: tuple[PlannedConjunct, ...]
    registers: tuple[tuple[int, int, bool], ...] = ()
    # For EXPLAIN: forward or rebind, and the original conditions.
    kind: str = "forward"
    conditions: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedNode:
    conjuncts: tuple[PlannedConjunct, ...] = ()
    slot: int = 0
    key: tuple[int, int, int] | None = None
    conditions: tuple[Bound, ...] = ()
    # Every event that satisfies the filter predicate takes the instances here, not only the first one.
    stays: bool = False


@dataclass(frozen=True, slots=True)
class PlannedBranch:
    """The automaton of a branch. Place 0 is the start, and the last place is final."""

    branch: Branch
    nodes: tuple[PlannedNode, ...]
    edges: tuple[PlannedEdge, ...]


# The source of an edge, its predicate, its registers, and its original conditions.
_Entering = tuple[int, tuple[PlannedConjunct, ...], tuple[tuple[int, int, bool], ...], tuple[Bound, ...]]


class Planner:
    """Plans branches that share lanes and programs.

    With `indexed`, static predicates become ranges, for indexes over many queries. Otherwise the condition of an
    operand on an event becomes one lane.
    """

    def __init__(self, time: Type, *, indexed: bool, many_types: bool = True) -> None:
        self.lanes = EventLanes()
        self.programs = ProgramTable()
        self.parameters: list[str] = []
        self._time = time
        self._indexed = indexed
        self._many_types = many_types
        self._sources: tuple[Source, ...] = ()

    def branch(self, branch: Branch) -> PlannedBranch:
        """The automaton of one branch."""
        self._sources = (branch.start.source, *(step.operand.source for step in branch.steps))
        nodes: list[PlannedNode] = [PlannedNode()]
        edges: list[PlannedEdge] = []
        start = self._conjuncts(branch.start.conditions, branch.start.source, member=True)
        entering: list[_Entering] = [(0, start, (), branch.start.conditions)]
        for number, step in enumerate(branch.steps, start=1):
            source = step.operand.source
            places = []
            for each in step.iterations:
                conditions = (*step.operand.conditions, *each.theta)
                places.append(len(nodes))
                nodes.append(replace(self._node(conditions, source, number), stays=step.operator is Operator.EACH))
            edges += [PlannedEdge(s, places[0], c, r, "forward", text) for s, c, r, text in entering]
            entering = []
            for place, each in zip(places, step.iterations, strict=True):
                registers = self._registers(each, step.first_register)
                if step.operator is Operator.FOLD:
                    keeps = self._conjuncts(each.keeps, source)
                    edges.append(PlannedEdge(place, places[-1], keeps, registers, "rebind", each.keeps))
                conditions = (*each.keeps, *each.results)
                entering.append((place, self._conjuncts(conditions, source), registers, conditions))
        final = len(nodes)
        nodes.append(PlannedNode(slot=len(branch.steps) + 1))
        edges += [PlannedEdge(s, final, c, r, "forward", text) for s, c, r, text in entering]
        return PlannedBranch(branch, tuple(nodes), tuple(edges))

    def _node(self, conditions: tuple[Bound, ...], source: Source, slot: int) -> PlannedNode:
        conjuncts = self._conjuncts(conditions, source, member=True)
        (first, *more) = conjuncts
        if more or first.key is None:
            return PlannedNode(conjuncts, slot, None, conditions)
        # The index finds only instances for which the equality holds, so it is not tested again.
        rest = tuple(program for program in first.programs if program != first.key_program)
        kept = PlannedConjunct(first.static, first.durations, rest, first.enabled)
        return PlannedNode((kept,), slot, first.key, conditions)

    def _registers(self, each: Iteration, first: int) -> tuple[tuple[int, int, bool], ...]:
        found = []
        for number, value in enumerate(each.registers, start=first):
            found.append((number, self._value_program(value), value.type.kind is Kind.FLOAT))
        return tuple(found)

    def _value_program(self, value: Bound) -> int:
        if value.type.kind in (Kind.STRING, Kind.BINARY):
            if not isinstance(value, Attribute):
                raise _refused(
                    value, "a text that fold(…) carries to the next iteration must be an unchanged attribute"
                )
            lane = self.lane(value.component, LaneSpec(value, Domain.CODE))
            return self.programs.number([Instruction(Opcode.LOAD_INT, lane=lane)])
        try:
            return self.programs.number(program_of(value, self).instructions)
        except Inexpressible:
            raise _refused(value, "fold(…) cannot compute this in each iteration") from None

    # ── Lanes that programs load ───────────────────────────────────────────────────────────────────

    def lane(self, component: int, spec: LaneSpec) -> Lane:
        """The lane of a value that programs load, for `plan.lowering`."""
        floating = spec.domain is Domain.FLOAT
        if component in (REGISTERS, PARAMETERS):
            assert isinstance(spec.expression, Attribute)
            if spec.domain is Domain.RANK:
                raise Inexpressible
            name = spec.expression.path[0]
            if component == REGISTERS:
                return Lane(component, int(name), floating)
            if spec.domain is Domain.CODE:
                raise Inexpressible
            if name not in self.parameters:
                self.parameters.append(name)
            return Lane(component, self.parameters.index(name), floating)
        source = self._sources[component] if component >= 0 else self._current
        expression = moved(spec.expression, component, CURRENT)
        number = self.lanes.number(self._lane(source, _FORM_OF_DOMAIN[spec.domain], (expression,)))
        return Lane(component, number, floating)

    def _lane(self, source: Source, form: Form, expressions: tuple[Bound, ...]) -> EventLane:
        return EventLane(None if self._indexed else source, form, expressions)

    # ── Disjunctive form ───────────────────────────────────────────────────────────────────────────

    def _conjuncts(
        self, conditions: Sequence[Bound], source: Source, *, member: bool = False
    ) -> tuple[PlannedConjunct, ...]:
        """The conjunction of conditions in disjunctive form. With `member`, the event must also be one of the
        source's.
        """
        self._current = source
        found = disjunctive_form(conditions)
        return tuple(self._conjunct(comparisons, source, member) for comparisons in found)

    def _conjunct(self, comparisons: Sequence[Bound], source: Source, member: bool) -> PlannedConjunct:
        static: list[StaticAtom] = []
        durations: list[DurationBound] = []
        programs: list[int] = []
        enabled: list[Bound] = []
        truths: list[Bound] = []
        key, key_program = None, None
        for comparison in comparisons:
            read = components_of(comparison)
            if read <= {PARAMETERS}:
                enabled.append(comparison)
            elif (bound := self._duration_bound(comparison)) is not None:
                durations.append(bound)
            elif read <= {CURRENT, PARAMETERS} and (atoms := self._static(comparison, source)):
                static += atoms
            elif read == {CURRENT}:
                truths.append(comparison)
            else:
                program = self._program(comparison)
                programs.append(program)
                found = self._key(comparison)
                if found is not None and key is None:
                    key, key_program = found, program
        one = Constant(True, type=BOOL)
        if member and self._indexed:
            static += self._member(source)
        if truths or (member and not self._indexed):
            static.append(StaticAtom(self._lane(source, Form.TRUTH, tuple(truths)), "=", one, weak=self._indexed))
        return PlannedConjunct(tuple(static), tuple(durations), tuple(programs), tuple(enabled), key, key_program)

    def _member(self, source: Source) -> list[StaticAtom]:
        base = source.base
        assert base is not None, "an index is over the input alone"
        if base.type is None or not self._many_types:
            return []
        return [StaticAtom(EventLane(None, Form.TYPE, ()), "=", Constant(base.type, type=BOOL), weak=True)]

    def _duration_bound(self, comparison: Bound) -> DurationBound | None:
        sides = _sides(comparison)
        if sides is None:
            return None
        whole = duration(0, CURRENT, self._time)
        for operator, left, right in sides:
            is_number = right.type.kind in (Kind.INT, Kind.DURATION) and components_of(right) <= {PARAMETERS}
            if left == whole and is_number and operator != "!=":
                return DurationBound(operator, right)
        return None

    def _static(self, comparison: Bound, source: Source) -> list[StaticAtom]:
        """The tests that an index can find: comparisons of a value of the event with constants of the query."""
        if not self._indexed:
            return []
        optional = _optional(comparison)
        if optional is not None:
            unless, tests = optional
            found = [self._static(test, source) for test in tests]
            return [atom._replace(unless=unless) for atoms in found for atom in atoms] if all(found) else []
        beginning = _beginning(comparison)
        if beginning is not None:
            return self._begins_with(*beginning, source)
        for operator, left, right in _sides(comparison) or ():
            if components_of(left) != {CURRENT} or not components_of(right) <= {PARAMETERS}:
                continue
            kind = left.type.kind
            if kind in _RANGED:
                form = Form.ORDERED if kind is Kind.FLOAT else Form.INT
                return [StaticAtom(self._lane(source, form, (left,)), operator, right)]
            if kind in (Kind.STRING, Kind.BINARY) and operator in ("=", "!="):
                return [StaticAtom(self._lane(source, Form.CODE, (left,)), operator, right)]
        return []

    def _begins_with(self, text: Bound, beginning: Bound, chunks: int, source: Source) -> list[StaticAtom]:
        """Tests that a text begins with another, as ranges of numbers. Each number is eight bytes of the text."""
        found = []
        for place in range(0, CHUNK * chunks, CHUNK):
            lane = self._lane(source, Form.INT, (_chunk(text, place, 0),))
            found += [StaticAtom(lane, ">=", _chunk(beginning, place, 0))]
            found += [StaticAtom(lane, "<=", _chunk(beginning, place, 255))]
        return found

    def _program(self, comparison: Bound) -> int:
        try:
            return self.programs.number(program_of(_anchored(comparison), self).instructions)
        except Inexpressible:
            raise _refused(comparison, "this condition computes with texts of several events") from None

    def _key(self, comparison: Bound) -> tuple[int, int, int] | None:
        for operator, left, right in _sides(comparison) or ():
            if operator != "=" or components_of(left) != {CURRENT}:
                continue
            read = components_of(right)
            if len(read) != 1 or right.type.kind is Kind.FLOAT or left.type.kind is Kind.FLOAT:
                continue
            (component,) = read
            if component == PARAMETERS or (component == REGISTERS and not isinstance(right, Attribute)):
                continue
            domain = Domain.CODE if left.type.kind in (Kind.STRING, Kind.BINARY) else Domain.INT
            mine = self.lane(CURRENT, LaneSpec(left, domain))
            other = self.lane(component, LaneSpec(right, domain))
            return (mine.lane, component, other.lane)
        return None


def _sides(comparison: Bound) -> list[tuple[str, Bound, Bound]] | None:
    """A comparison of two values, once from each side: (operator, left, right). None for other expressions."""
    if not isinstance(comparison, Operation) or comparison.operator not in _MIRRORED:
        return None
    left, right = comparison.operands
    return [(comparison.operator, left, right), (_MIRRORED[comparison.operator], right, left)]


def _chunk(text: Bound, place: int, fill: int) -> Bound:
    return Operation("text_chunk", (text, Constant(place, type=INT), Constant(fill, type=INT)), type=INT)


def _beginning(condition: Bound) -> tuple[Bound, Bound, int] | None:
    """(text, beginning, number of eight-byte chunks) of `name LIKE 'ab%'` or `startswith(name, 'ab')`; None for other
    conditions.
    """
    if not isinstance(condition, Operation) or condition.operator not in ("like", "startswith"):
        return None
    text, beginning, *escape = condition.operands
    if components_of(text) != {CURRENT} or text.type.kind is not Kind.STRING:
        return None
    if components_of(beginning) == {PARAMETERS}:
        if escape:
            beginning = Operation("prefix_of_like", (beginning, *escape), type=beginning.type)
        return text, beginning, CHUNKS_MAX
    if not isinstance(beginning, Constant) or beginning.value is None:
        return None
    if escape:
        (character,) = escape
        assert isinstance(character, Constant), "ESCAPE takes a literal"
        beginning = Constant(like_prefix(str(beginning.value), str(character.value)), type=beginning.type)
    if beginning.value is None or "\0" in str(beginning.value):
        return None
    chunks = -(-len(str(beginning.value).encode("utf-8", "surrogatepass")) // CHUNK)
    return (text, beginning, max(1, chunks)) if chunks <= CHUNKS_MAX else None


def _optional(condition: Bound) -> tuple[Bound, tuple[Bound, ...]] | None:
    """(condition, tests) of `:p IS NULL OR x = :p`: only queries for which the condition does not hold make the
    tests.
    """
    if not isinstance(condition, Operation) or condition.operator != "or":
        return None
    unless = [operand for operand in condition.operands if components_of(operand) == {PARAMETERS}]
    tests = [operand for operand in condition.operands if components_of(operand) != {PARAMETERS}]
    if not unless or len(tests) != 1 or not isinstance(tests[0], Operation):
        return None
    test = tests[0]
    assert isinstance(test, Operation)
    either = unless[0] if len(unless) == 1 else Operation("or", tuple(unless), type=BOOL)
    parts = test.operands if test.operator == "and" else (test,)
    return (either, parts) if all(_sides(part) or _beginning(part) for part in parts) else None


def disjunctive_form(conditions: Iterable[Bound]) -> list[list[Bound]]:
    """Conditions as a list of alternatives, one of which must hold in all its parts. A condition that would give too
    many alternatives stays as it is.

    >>> a, b, c = (Constant(True, type=BOOL), Constant(False, type=BOOL), Constant(None, type=BOOL))
    >>> either = Operation("or", (a, b), type=BOOL)
    >>> len(disjunctive_form([either, Operation("or", (b, c), type=BOOL)]))
    4
    """
    found: list[list[Bound]] = [[]]
    for condition in (one for given in conditions for one in _conjuncts(with_not_pushed_in(given))):
        alternatives = _alternatives(condition)
        if len(found) * len(alternatives) > CONJUNCTS_MAX:
            alternatives = [[condition]]
        found = [[*left, *right] for left in found for right in alternatives]
    return [list(dict.fromkeys(alternative)) for alternative in found]


def _conjuncts(condition: Bound) -> Iterator[Bound]:
    """The parts of a condition that AND joins, each separately. If one has too many alternatives, the others can still
    be split.
    """
    if isinstance(condition, Operation) and condition.operator == "and" and _optional(condition) is None:
        for operand in condition.operands:
            yield from _conjuncts(operand)
    else:
        yield condition


def _alternatives(condition: Bound) -> list[list[Bound]]:
    if not isinstance(condition, Operation):
        return [[condition]]
    if _optional(condition) is not None:
        return [[condition]]
    if condition.operator == "or":
        found = [one for operand in condition.operands for one in _alternatives(operand)]
        return found if len(found) <= CONJUNCTS_MAX else [[condition]]
    if condition.operator == "and":
        product: list[list[Bound]] = [[]]
        for operand in condition.operands:
            more = _alternatives(operand)
            if len(product) * len(more) > CONJUNCTS_MAX:
                more = [[operand]]
            product = [[*left, *right] for left in product for right in more]
        return product
    if condition.operator == "in" and len(condition.operands) <= 1 + ITEMS_MAX:
        value, *items = condition.operands
        return [[Operation("=", (value, item), type=BOOL, span=condition.span)] for item in items]
    return [[condition]]


def _anchored(condition: Bound) -> Bound:
    """An equal condition whose parts all read an event.

    Kernels have no texts, so `'u' = 'v'` must become a lane, as other conditions on one event do. A condition c that
    reads no event becomes c OR (c AND the current event's end is null), which is always equal to c.
    """

    def change(part: Bound) -> Bound | None:
        if not isinstance(part, Operation) or components_of(part):
            return None
        if part.type != BOOL:
            return part
        never = Operation("is_null", (Intrinsic(CURRENT, EventField.END, type=INT),), type=BOOL)
        return Operation("or", (part, Operation("and", (part, never), type=BOOL)), type=BOOL)

    return rewritten(condition, change)


def _refused(expression: Bound, message: str) -> QueryError:
    return QueryError(
        message,
        hint="compute the part of one event with extend(…) on the operand, and compare that",
    )


# ── Numbers ────────────────────────────────────────────────────────────────────────────────────────


def range_of(operator: str, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """(low, high, negated): the range of values that satisfy a comparison with constants.

    >>> [part.tolist() for part in range_of(">", np.array([5, INT64_MAX]))[:2]]
    [[6, 9223372036854775807], [9223372036854775807, 9223372036854775806]]
    """
    if operator in ("=", "!="):
        return constants, constants, operator == "!="
    low = np.broadcast_to(np.int64(INT64_MIN), constants.shape)
    high = np.broadcast_to(np.int64(INT64_MAX), constants.shape)
    if operator in ("<", "<="):
        high = constants if operator == "<=" else constants - (constants > INT64_MIN)
        if operator == "<":
            low = np.where(constants == INT64_MIN, INT64_MAX, low)
    else:
        low = constants if operator == ">=" else constants + (constants < INT64_MAX)
        if operator == ">":
            high = np.where(constants == INT64_MAX, INT64_MAX - 1, high)
    return low, high, False


# ── The engine ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AlgebraPlan(Plan):
    """A plan of an algebra expression. Its automata are planned later, together with their tables, when the columns of
    the input are known.
    """

    engine: ClassVar[str] = "automata"
    query: BoundAlgebra  # type: ignore[assignment]


class _Automata(Engine):
    def applies(self, query: object) -> bool:
        return isinstance(query, BoundAlgebra)

    def plan(
        self, query: BoundAlgebra, statistics: Statistics, off: Collection[str], model: LossModel | None
    ) -> AlgebraPlan:
        return AlgebraPlan(query, roles={})

    def check_stream(self, query: BoundAlgebra, off: Collection[str]) -> None:
        from ouzel.engines.automata.operator import require_bounded

        require_bounded(query)

    def explain(self, plan: AlgebraPlan) -> Explanation:
        return explain(plan.query)

    def operator(self, plan: AlgebraPlan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.automata.operator import AlgebraOperator

        return AlgebraOperator(plan.query, layout, limits)


ENGINE = _Automata()


@dataclass(frozen=True)
class _Named:
    """A component for `render`, which reads only its variable."""

    variable: str


class _Components:
    """The names of the components of edge predicates."""

    def __getitem__(self, component: int) -> _Named:
        special = {CURRENT: "event", REGISTERS: "carried", PARAMETERS: ":"}
        return _Named(special.get(component, f"e{component + 1}"))


class _Query:
    components = _Components()


def explain(query: BoundAlgebra) -> Explanation:
    """Describe the automata of an expression. A stream comes after those that it reads."""
    states: list[State] = []
    arrows: list[Arrow] = []
    lines: list[OperatorLine] = []
    time = query.catalog.time.type
    for number, stream in enumerate(query.streams):
        is_answer = number == len(query.streams) - 1
        shown = []
        for branch in stream.branches:
            first = len(states)
            _draw(branch, states, arrows, time)
            shown.append(f"states {first + 1} to {len(states)}: {_summary(branch)}")
        title = "answer" if is_answer else f"stream {number + 1}, read by later automata"
        lines.append(OperatorLine(title, tuple(shown)))
    linear = len(query.streams) == 1
    because = (
        "a linear-plus expression: one automaton, acyclic except for filter and rebind loops"
        if linear
        else "not linear-plus: split into linear-plus parts that read each other's results (resubscription)"
    )
    normal = normal_form(query.expression, query.catalog)
    shown = ["only σ costs anything; σ, ρ, α and π have a normal form (Theorem 3)"]
    shown.append("written so already" if normal == query.expression else f"rewritten: {normal!r}")
    lines.append(OperatorLine("unary operators", tuple(shown)))
    if any(len(stream.branches) > 1 for stream in query.streams):
        text = "one automaton for each side; results with the same sources and values are one"
        lines.append(OperatorLine("union", (text,)))
    return Explanation(
        name=query.name,
        engine="automata",
        text=query.text,
        automaton=Automaton(tuple(states), tuple(arrows)),
        operators=tuple(lines),
        notes=(),
        kernel="automata",
        because=because,
    )


def _draw(branch: Branch, states: list[State], arrows: list[Arrow], time: Type) -> None:
    place = len(states)
    states.append(State("start"))
    label = _source(branch.start.source)
    arrows.append(Arrow("forward", place, place + 1, label, _texts(branch.start.conditions, time)))
    for number, step in enumerate(branch.steps, start=1):
        place += 1
        states.append(State(_letter(number)))
        first = step.iterations[0]
        source = _source(step.operand.source)
        theta = _texts((*step.operand.conditions, *first.theta), time)
        passed = f"NOT ({' AND '.join([source, *theta])})"
        arrows.append(Arrow("filter", place, place, "every event", (passed,)))
        later = step.iterations[-1]
        if step.operator is Operator.FOLD:
            tests = _texts((*later.theta, *later.keeps), time)
            arrows.append(Arrow("rebind", place, place, source, (*tests, *_registers(step, time))))
        tests = _texts((*later.theta, *later.keeps, *later.results), time)
        arrows.append(Arrow("forward", place, place + 1, source, tests))
    states.append(State(_letter(len(branch.steps) + 1), final=True))


def _letter(number: int) -> str:
    return chr(ord("A") + number - 1) if number <= 26 else f"N{number}"


def _source(source: Source) -> str:
    if source.derived is not None:
        return f"stream {source.derived + 1}"
    assert source.base is not None
    return source.base.type or "any event"


def _texts(conditions: Iterable[Bound], time: Type) -> tuple[str, ...]:
    """The conditions of an edge as text, one for each conjunct."""
    alternatives = disjunctive_form(conditions)
    texts = [[_text(one, time) for one in conjunct] for conjunct in alternatives]
    if len(texts) == 1:
        return tuple(texts[0])
    return (" OR ".join(f"({' AND '.join(conjunct)})" for conjunct in texts),)


def _text(expression: Bound, time: Type) -> str:
    wholes = {duration(0, CURRENT, time), duration(CURRENT, CURRENT, time)}

    def change(part: Bound) -> Bound | None:
        return Attribute(CURRENT, ("DUR",), type=part.type) if part in wholes else None

    query: Any = _Query()
    return render(query, rewritten(expression, change)).replace("event.DUR", "DUR").replace(":.", ":")


def _registers(step: Step, time: Type) -> tuple[str, ...]:
    values = step.iterations[-1].registers
    return tuple(f"carried.{step.first_register + k} := {_text(value, time)}" for k, value in enumerate(values))


def _summary(branch: Branch) -> str:
    parts = [_source(branch.start.source)]
    parts += [f"{step.operator.value} {_source(step.operand.source)}" for step in branch.steps]
    return ", ".join(parts)

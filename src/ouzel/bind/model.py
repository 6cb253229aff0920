"""A bound query: every name is resolved to a component or an attribute, and every expression has a type.

The planner, the runtimes and EXPLAIN read these classes. After binding, no code reads query text or syntax trees.
Components are numbered by their place in SEQ, including negative ones.

Workers and snapshots store a bound query as JSON, so they need neither a parser nor pickle. Decoding can make only the
classes of this module, because names in the JSON are looked up in a fixed table.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any

from ouzel.errors import StateError
from ouzel.lang import syntax
from ouzel.lang.syntax import NOWHERE, Contiguity, Notation, OutputForm, Span, Strategy

# ── Types ──────────────────────────────────────────────────────────────────────────────────────────


class Kind(Enum):
    UNKNOWN = "unknown"  # no event type is declared and no schema is known yet: every use is allowed
    NULL = "null"  # the bare literal NULL
    BOOL = "boolean"
    INT = "integer"  # every width; computed as int64
    FLOAT = "double"  # float and double; computed as float64
    DECIMAL = "decimal"  # at most 18 digits, exact
    STRING = "string"
    BINARY = "binary"
    DATE = "date"  # days
    TIMESTAMP = "timestamp"  # ticks of `unit`, with or without a zone
    DURATION = "duration"  # ticks of `unit`; a literal or parameter has no unit until it is combined
    STRUCT = "struct"  # fields are reached by dots
    LIST = "list"  # its elements are reached by any(…)
    OTHER = "map or time of day"  # carried to the output, never compared


NUMBERS = frozenset({Kind.INT, Kind.FLOAT, Kind.DECIMAL})
# Values that are returned and tested for null, and never computed with as a whole.
WHOLE = frozenset({Kind.STRUCT, Kind.LIST, Kind.OTHER})


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an attribute or expression.

    >>> str(Type(Kind.DECIMAL, precision=10, scale=2))
    'decimal(10,2)'
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    unit: str | None = None  # of timestamps and durations: "us" or "ns"
    zone: str | None = None  # of timestamps: None means without zone
    fields: tuple[tuple[str, Type], ...] = ()  # of structs; of a list the type of its elements, without a name

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return str(self.kind.value)


UNKNOWN = Type(Kind.UNKNOWN)
NULL = Type(Kind.NULL)
BOOL = Type(Kind.BOOL)
INT = Type(Kind.INT)
FLOAT = Type(Kind.FLOAT)
STRING = Type(Kind.STRING)
BINARY = Type(Kind.BINARY)
DATE = Type(Kind.DATE)
DURATION = Type(Kind.DURATION)
OTHER = Type(Kind.OTHER)


def list_type(element: Type) -> Type:
    """
    >>> str(list_type(INT))
    'list'
    """
    return Type(Kind.LIST, fields=(("", element),))


def duration_type(unit: str | None) -> Type:
    """The type of a duration in the ticks of timestamps with a unit."""
    return Type(Kind.DURATION, unit=unit or "us")


@dataclass(frozen=True, slots=True)
class TimeDomain:
    """How event time is counted. `tick_ns` is None if ticks are plain numbers without a unit."""

    type: Type = UNKNOWN
    tick_ns: int | None = None

    @property
    def known(self) -> bool:
        return self.type.kind is not Kind.UNKNOWN


@dataclass(frozen=True, slots=True)
class Catalog:
    """The event types that a query may name, and their attributes in column order.

    There are four cases. Neither `declared` nor `common`: nothing is known yet. Only `common`: every type has these
    columns, as in one table without declared types. Only `declared`: other types are errors. Both, for a table and
    derived streams: every type that is not declared has the columns of `common`.
    """

    declared: Mapping[str, Mapping[str, Type]] | None = None
    common: Mapping[str, Type] | None = None
    time: TimeDomain = field(default_factory=TimeDomain)

    @property
    def open(self) -> bool:
        """Whether nothing is known, so that every type and every attribute is assumed to exist."""
        return self.declared is None and self.common is None

    @property
    def any_types(self) -> tuple[str, ...]:
        """The types that an event may have; "" means those that are not declared."""
        rest = ("",) if self.common is not None or self.declared is None else ()
        return (*(self.declared or ()), *rest)

    def attributes(self, type_name: str) -> Mapping[str, Type] | None:
        """The attributes of an event type; None if the catalog is open or does not have the type."""
        if self.declared is not None and type_name in self.declared:
            return self.declared[type_name]
        return self.common


# ── Expressions ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A typed expression."""

    type: Type
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Constant(Bound):
    """A literal or parameter as the engine stores it. Timestamps are ticks, dates are days since 1970, and decimals
    have the scale of their type. Durations are ticks in the unit of their type, or nanoseconds while the type has no
    unit.
    """

    value: int | float | Decimal | str | bytes | bool | None


class At(Enum):
    """Which event of its component a reference means."""

    SINGLE = "single"  # the component has no +
    FIRST = "first"  # v[1]
    CURRENT = "current"  # v[i]
    PREVIOUS = "previous"  # v[i-1]
    LAST = "last"  # v[v.LEN]
    EVERY = "every"  # v.attr in RETURN: the array of all; its type is that of one element. In AGG: each of them


@dataclass(frozen=True, slots=True)
class Attribute(Bound):
    """An attribute of a bound event. `present_in` has the types of its component that have the attribute; None if all
    have it.

    If the event's type lacks the attribute, the comparison around it is true (docs/semantics.md, "Absent attributes").
    """

    component: int
    path: tuple[str, ...]
    at: At = At.SINGLE
    present_in: frozenset[str] | None = None


class EventField(Enum):
    TYPE = "type"
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Intrinsic(Bound):
    """The event's own type, start or end (`v.time` is its end)."""

    component: int
    field: EventField
    at: At = At.SINGLE


@dataclass(frozen=True, slots=True)
class Length(Bound):
    """`v.LEN`, the number of events of a component."""

    component: int


@dataclass(frozen=True, slots=True)
class Presence(Bound):
    """`v IS PRESENT`: whether an optional component has an event."""

    component: int


class Scope(Enum):
    BEFORE = "before"  # v[..i-1]
    ALL = "all"  # v[]


@dataclass(frozen=True, slots=True)
class Aggregation(Bound):
    """An aggregate of functions.py over the events of a Kleene component. A count without an argument has no
    operand.
    """

    function: str
    component: int
    scope: Scope
    operand: Bound | None = None  # over one event, whose attributes are at CURRENT


@dataclass(frozen=True, slots=True)
class Operation(Bound):
    """An operator, or a function of functions.py, whose operands already have types that fit.

    Operators are: and or not = != < <= > >= + - * / % negate in like is_null any case cast. The operands of `in` are
    the tested value and the items; of `like` value, pattern and escape; of `any` a list and a condition on an Element;
    of `case` condition, result, …, and the ELSE value. `cast` converts its operand to its own type, and gives null if
    that fails.
    """

    operator: str
    operands: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Element(Bound):
    """An element of a list, or a field of one, in the condition of an `any`. `level` is the number of other `any`
    around that one. The name is for EXPLAIN, and empty in `x IN v.list`.
    """

    level: int
    name: str = field(compare=False)
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompoundComparison(Operation):
    """An `and` or `or` of comparisons that counts as one comparison, so that normal forms do not split it: BETWEEN, and
    IN if its items are compared at scales of their own.
    """


@dataclass(frozen=True, slots=True)
class ResultColumn(Bound):
    """A name in HAVING: a column of the result row, which is a group key or an aggregate."""

    name: str


def parts(expression: Bound) -> Iterator[Bound]:
    """The expression and all its parts, except those inside aggregates."""
    stack = [expression]
    while stack:
        part = stack.pop()
        yield part
        if isinstance(part, Operation):
            stack.extend(reversed(part.operands))


def rewritten(expression: Bound, change: Callable[[Bound], Bound | None]) -> Bound:
    """The expression with some parts replaced. `change` returns the replacement of a part; None to look inside it."""
    changed = change(expression)
    if changed is not None:
        return changed
    if not isinstance(expression, Operation):
        return expression
    operands = tuple(rewritten(operand, change) for operand in expression.operands)
    unchanged = all(new is old for new, old in zip(operands, expression.operands, strict=True))
    return expression if unchanged else replace(expression, operands=operands)


def replaced(expression: Bound, change: Callable[[Attribute | Intrinsic], Bound]) -> Bound:
    """The expression with every reference to an event replaced, except inside aggregates."""
    return rewritten(expression, lambda part: change(part) if isinstance(part, Attribute | Intrinsic) else None)


# ── Queries ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Component:
    """One component of SEQ. `types` is None for a variable of any type. A component after WITHOUT has `across`: the
    positive components between whose first and last event it forbids. Such components come after all others. A
    component in a negated SEQ has `nested`, the number of that SEQ, and is negative too.
    """

    position: int
    variable: str
    types: tuple[str, ...] | None
    kleene: bool
    negated: bool
    across: tuple[int, ...] = ()
    nested: int | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A component in a reading. `types` are its types in this reading, because alternatives with the same variable may
    have different types. `least` and `most` bound the number of events of a Kleene component.
    """

    component: int
    types: tuple[str, ...] | None
    least: int = 1
    most: int | None = None


Reading = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a negative component forbids events: between an event of the positive component `after` and one of
    `before`. None is an end of the window. Normally these are the last event of `after` and the first of `before`; with
    `across`, the first event of `after` and the last of `before`.
    """

    after: Component | None
    before: Component | None
    across: bool = False


class Edge(Enum):
    """The edge of NFA^b on which a conjunct is tested (SASE+ 3.2, step 2)."""

    BEGIN = "begin"
    TAKE = "take"
    PROCEED = "proceed"


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A disjunction whose parts are comparisons, or ANDs and ORs of comparisons. NOT is pushed into the comparisons,
    because the rule about absent attributes applies to single comparisons.

    `components` are the components that it names, and `negative` is the negative one among them, if any. A conjunct
    without a negative component is tested on `edge` of component `tested_at`. A conjunct with one is tested together
    with the negation.
    """

    comparisons: tuple[Bound, ...]
    components: frozenset[int]
    negative: int | None
    tested_at: int
    edge: Edge
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def single_event(self) -> bool:
        """Whether the conjunct names only one event, so that it decides the role of that event. v[i] and v[i-1] are two
        events.
        """
        if len(self.components) != 1:
            return False
        named = [part for comparison in self.comparisons for part in parts(comparison)]
        if any(isinstance(part, Length | Aggregation) for part in named):
            return False
        events = {part.at for part in named if isinstance(part, Attribute | Intrinsic)}
        return len(events) == 1 and events <= {At.SINGLE, At.FIRST, At.CURRENT}


@dataclass(frozen=True, slots=True)
class EquivalenceTest:
    """`[attr]`: all bound events whose types have the attribute have the same value. `lacked_by` maps the position of a
    component to its types that lack the attribute. Components whose types all have it are not in the mapping.
    """

    path: tuple[str, ...]
    type: Type
    value: Constant | None
    lacked_by: Mapping[int, frozenset[str]]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The condition last.end - first.start < ticks. `ticks` is None while the time domain is not known."""

    ticks: int | None
    # The text as written in the query.
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class EventWindow:
    """The condition last.position - first.position < count, with positions counted in the partition."""

    count: int


@dataclass(frozen=True, slots=True)
class OutputColumn:
    name: str
    expression: Bound


@dataclass(frozen=True, slots=True)
class GroupKey:
    """`GROUP BY attr`, which has a path and no component and implies [attr]; or `GROUP BY v.attr`, which has an
    expression.
    """

    name: str
    path: tuple[str, ...] | None
    expression: Bound | None
    type: Type


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    name: str
    function: str
    argument: Bound | None
    type: Type
    # Only HAVING uses it, so it is not a column of the result.
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class BoundOutput:
    form: OutputForm
    component: int | None = None


@dataclass(frozen=True, slots=True)
class BoundThreshold:
    value: float
    on_probability: bool


@dataclass(frozen=True, slots=True)
class BoundStep:
    """Which events may come between an event of a step (BEGIN or TAKE of a component) and the event bound before it."""

    component: int
    edge: Edge
    contiguity: Contiguity


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A checked query, ready for the planner."""

    name: str
    text: str
    notation: Notation
    components: tuple[Component, ...]
    strategy: Strategy
    conjuncts: tuple[Conjunct, ...]
    equivalences: tuple[EquivalenceTest, ...]
    window: TimeWindow | EventWindow | None
    output: BoundOutput
    # None: the default output of start, end and a struct per positive variable.
    returns: tuple[OutputColumn, ...] | None
    # The type of the derived event: RETURN's name, else INTO's, else the query's name.
    result_type: str
    into: str | None
    sources: tuple[str, ...]
    catalog: Catalog
    group_by: tuple[GroupKey, ...] = ()
    aggregates: tuple[AggregateColumn, ...] = ()
    having: Bound | None = None
    emit_on_change: bool = False
    threshold: BoundThreshold | None = None
    # AYAC's defaults such as `x.id[z.id]`: the value of an attribute of a missing event, wherever the query names it.
    defaults: Mapping[Attribute | Intrinsic, Bound] = field(default_factory=dict)
    # The linear patterns that the pattern means; empty if it is linear, with `components` in order.
    readings: tuple[Reading, ...] = ()
    # Of the strategy contiguity(…); steps that are not named may skip any event.
    steps: tuple[BoundStep, ...] = ()

    def contiguity(self, component: int, edge: Edge) -> Contiguity:
        """The events that contiguity(…) allows before an event of a step."""
        named = (step.contiguity for step in self.steps if (step.component, step.edge) == (component, edge))
        return next(named, Contiguity.ANY)

    @property
    def is_strict(self) -> bool:
        """Whether some step must not skip any event of the stream."""
        return self._demands(Strategy.STRICT_CONTIGUITY, Contiguity.STRICT)

    @property
    def is_partition_contiguous(self) -> bool:
        """Whether some step must not skip any event of its partition."""
        return self._demands(Strategy.PARTITION_CONTIGUITY, Contiguity.PARTITION)

    def _demands(self, strategy: Strategy, contiguity: Contiguity) -> bool:
        return self.strategy is strategy or any(step.contiguity is contiguity for step in self.steps)

    @property
    def orders(self) -> tuple[tuple[Component, ...], ...]:
        """The components of each reading, in order."""
        if not self.readings:
            return (self.components,)
        return tuple(
            tuple(replace(self.components[step.component], types=step.types) for step in reading)
            for reading in self.readings
        )

    def interval(self, negative: Component) -> Interval:
        """Where a negative component forbids events. Only for a query with one reading."""
        if negative.across:
            first, last = negative.across[0], negative.across[-1]
            return Interval(self.components[first], self.components[last], across=True)
        before = [c for c in self.positives if c.position < negative.position]
        after = [c for c in self.positives if c.position > negative.position]
        return Interval(before[-1] if before else None, after[0] if after else None)

    def types_of(self, component: int) -> tuple[str, ...]:
        """The types that an event of a component may have; "" means those that are not declared."""
        types = self.components[component].types
        return self.catalog.any_types if types is None else types

    @property
    def lasts(self) -> tuple[Component, ...]:
        """The last positive component of each reading."""
        return tuple([c for c in order if not c.negated][-1] for order in self.orders)

    @property
    def ends_with_window(self) -> bool:
        """Whether a match may end with its window: because a negative component is last in some reading, or because
        OUTPUT FURTHEST waits for the end of the window.
        """
        return self.output.form is OutputForm.FURTHEST or self.negated_end

    @property
    def has_nested(self) -> bool:
        """Whether the pattern has a negated SEQ."""
        return any(c.nested is not None for c in self.components)

    @property
    def negated_end(self) -> bool:
        """Whether a negative component is last in some reading."""
        return any([c for c in order if not c.across][-1].negated for order in self.orders)

    @property
    def positives(self) -> tuple[Component, ...]:
        return tuple(c for c in self.components if not c.negated)

    @property
    def negatives(self) -> tuple[Component, ...]:
        return tuple(c for c in self.components if c.negated)


_CLASSES: dict[str, type] = {
    name: value
    for name, value in tuple(globals().items())
    if isinstance(value, type) and (dataclasses.is_dataclass(value) or issubclass(value, Enum))
}
_ENUMS: dict[str, type[Enum]] = {
    **{name: value for name, value in _CLASSES.items() if issubclass(value, Enum)},
    **{cls.__name__: cls for cls in (syntax.Contiguity, syntax.Notation, syntax.OutputForm, syntax.Strategy)},
}
_RECORDS: dict[str, type] = {name: value for name, value in _CLASSES.items() if not issubclass(value, Enum)}


def make_storable(*classes: type) -> None:
    """Let `encode` and `decode` accept more classes, such as those of bound row patterns."""
    for cls in classes:
        if issubclass(cls, Enum):
            _ENUMS[cls.__name__] = cls
        else:
            _RECORDS[cls.__name__] = cls


def encode(value: Any) -> Any:
    """A bound query, or any part of one, as plain JSON values.

    >>> decode(encode(Constant(7, type=INT)))
    Constant(type=Type(kind=<Kind.INT: 'integer'>, precision=0, scale=0, unit=None, zone=None, fields=()), value=7)
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # repr keeps every bit, and JSON has no NaN.
        return {"f": repr(value)}
    if isinstance(value, Enum):
        return {"e": [type(value).__name__, value.name]}
    if isinstance(value, Decimal):
        return {"d": str(value)}
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode("ascii")}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return {"s": [encode(item) for item in sorted(value)]}
    if isinstance(value, Mapping):
        return {"m": [[encode(key), encode(item)] for key, item in value.items()]}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _RECORDS:
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "span"}
        return {"r": [type(value).__name__, fields]}
    raise AssertionError(f"a {type(value).__name__} cannot be part of a bound query")


def decode(value: Any) -> Any:
    """The objects from the JSON values that `encode` returned."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if isinstance(value, dict) and len(value) == 1:
        ((tag, body),) = value.items()
        try:
            return _DECODERS[tag](body)
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise StateError(f"this is not a bound query that this version of Ouzel can read: {error}") from None
    raise StateError("this is not a bound query that this version of Ouzel can read")


_DECODERS: dict[str, Any] = {
    "f": float,
    "e": lambda body: _ENUMS[body[0]][body[1]],
    "d": Decimal,
    "b": lambda body: base64.b64decode(body, validate=True),
    "s": lambda body: frozenset(decode(item) for item in body),
    "m": lambda body: {decode(key): decode(item) for key, item in body},
    "r": lambda body: _RECORDS[body[0]](**{name: decode(item) for name, item in body[1].items()}),
}

"""The syntax tree of a query: what the text says, before any name is looked up.

Every node has a `span`, its place in the text. Spans are not compared, so `parse(format(q)) == q` holds although the
formatter moves text.

The size of a text and the depth of a tree are limited, so that no text can exhaust memory or the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

from ouzel.errors import QueryError


@dataclass(frozen=True, slots=True)
class Span:
    """Character offsets [start, end) in the text of the query."""

    start: int
    end: int


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    span: Span = field(default=NOWHERE, compare=False, repr=False)


# ── Expressions ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Expr(Node):
    """Any expression."""


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A number, string, boolean or null. A number without point and exponent is an int, and any other number is a
    Decimal.
    """

    value: int | Decimal | str | bool | None


@dataclass(frozen=True, slots=True)
class Percent(Expr):
    """`80%`: a number divided by 100."""

    value: int | Decimal


class TemporalKind(Enum):
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Temporal(Expr):
    """`TIMESTAMP '2024-05-01 12:00:00'` or `DATE '2024-05-01'`. The parser checks the text, and the binder converts
    it.
    """

    kind: TemporalKind
    text: str


@dataclass(frozen=True, slots=True)
class Duration(Expr):
    """`12 hours`, `1.5 s` or `INTERVAL 3 days`. The unit is one of us, ms, s, min, h, days and weeks."""

    amount: int | Decimal
    unit: str


@dataclass(frozen=True, slots=True)
class Parameter(Expr):
    """`:name`, whose value the user gives together with the text."""

    name: str


class IndexKind(Enum):
    NUMBER = "number"  # v[1]; any other number is refused by the binder
    ITERATION = "iteration"  # v[i], v[i-1] and, to be refused by the binder, v[i+1], v[i-2], …
    LAST = "last"  # v[v.LEN] and v[LEN]
    BEFORE = "before"  # v[..i-1]: all chosen before this one
    ALL = "all"  # v[]


@dataclass(frozen=True, slots=True)
class Index(Node):
    """The index in brackets after a Kleene variable. `offset` is the number, or the number that is added to i."""

    kind: IndexKind
    offset: int = 0
    # The w of v[w.LEN]; None in v[LEN]. The binder checks that it is v itself.
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Reference(Expr):
    """`price`, `a.price`, `a.address.city`, `v[i].price`, `v[]`, `v.LEN`, `x.id[z.id]`.

    `names` is the dotted path in the text. With an index, the first name is a variable. Without one, the binder decides
    whether it is a variable or an attribute. `default` is the value for a missing event (AYAC).
    """

    names: tuple[str, ...]
    index: Index | None = None
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function, or an aggregate over a Kleene variable. The name is in lower case."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AnyElement(Expr):
    """`any(v.list, t -> t > 3)`: whether the condition holds for some element of a list. In the condition, `variable`
    is the element.
    """

    operand: Expr
    variable: str
    condition: Expr


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`-x` or `NOT x`; the operator is "-" or "NOT"."""

    operator: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """Arithmetic (+ - * / %) or a comparison (= != < <= > >=). Chained equality is already a Logical of comparisons."""

    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Logical(Expr):
    """A chain of AND, or of OR, with two or more operands. The operator is "AND" or "OR"."""

    operator: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class In(Expr):
    operand: Expr
    items: tuple[Expr, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Expr):
    operand: Expr
    low: Expr
    high: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expr):
    operand: Expr
    pattern: Expr
    negated: bool = False
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    operand: Expr
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Presence(Expr):
    """`v IS PRESENT` or `v IS ABSENT`: whether a match has an event for a variable."""

    variable: str
    absent: bool = False


@dataclass(frozen=True, slots=True)
class When(Node):
    condition: Expr
    result: Expr


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """`CASE [operand] WHEN … THEN … [ELSE …] END`."""

    operand: Expr | None
    whens: tuple[When, ...]
    otherwise: Expr | None


@dataclass(frozen=True, slots=True)
class Equivalence(Expr):
    """`[attr]` or `[attr = 'x']`. `[a, b]` is a Logical AND of two of these. `names` is a dotted path."""

    names: tuple[str, ...]
    value: Expr | None = None


# ── Patterns ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    name: str


@dataclass(frozen=True, slots=True)
class Component(Node):
    """A component such as `T v`, `ANY(T1, T2) v`, `T? v`, `T+ v[]`, `T{2,3} v[]` or `!(T v)`. Without types, it has any
    type: `ANY v`, and `v` in SEQUENCE.

    `any_of` is true if the text has ANY, even around a single type. `variable` is None if the text has only a type.
    With `kleene`, `least` and `most` bound the number of events. `T? v` is a single event with `least` 0. `without` has
    negative components that forbid events between the first and the last event of this component.
    """

    types: tuple[TypeName, ...]
    variable: str | None
    kleene: bool = False
    negated: bool = False
    any_of: bool = False
    least: int = 1
    most: int | None = None
    without: tuple[Component, ...] = ()
    variable_span: Span = field(default=NOWHERE, compare=False, repr=False)


class GroupKind(Enum):
    SEQ = "SEQ"  # its parts in order
    OR = "OR"  # one of its parts
    AND = "AND"  # all its parts, in any order


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`SEQ(…)`, `OR(…)` or `AND(…)` inside a pattern, repeated `least` to `most` times: `SEQ(…)?` is 0 to 1. `most` is
    None if there is no upper bound, which the binder refuses. If `negated`, it is a SEQ that must not occur: `!(SEQ(B
    b, C c))`, or of one repetition `!(B{3,} b[])`.
    """

    kind: GroupKind
    parts: tuple[Component | Group, ...]
    least: int = 1
    most: int | None = 1
    negated: bool = False
    without: tuple[Component, ...] = ()

    @property
    def leaves(self) -> tuple[Component, ...]:
        """The components of the group, in the order of the text."""
        return leaves(self.parts)


def leaves(parts: tuple[Component | Group, ...]) -> tuple[Component, ...]:
    """The components of parts of a pattern, in the order of the text, without those after WITHOUT."""
    return tuple(leaf for part in parts for leaf in (part.leaves if isinstance(part, Group) else (part,)))


def _forbidden(parts: tuple[Component | Group, ...], first: int = 0) -> Iterator[tuple[range, Component]]:
    """Each component after WITHOUT in these parts, with the numbers of the leaves of its part. Leaves are counted from
    `first`.
    """
    for part in parts:
        last = first + (len(part.leaves) if isinstance(part, Group) else 1)
        if isinstance(part, Group):
            yield from _forbidden(part.parts, first)
        for leaf in part.without:
            yield range(first, last), leaf
        first = last


def _nested(parts: tuple[Component | Group, ...], first: int = 0) -> Iterator[range]:
    """The numbers of the leaves of each negated group. Leaves are counted from `first`."""
    for part in parts:
        last = first + (len(part.leaves) if isinstance(part, Group) else 1)
        if isinstance(part, Group):
            yield from (range(first, last),) if part.negated else _nested(part.parts, first)
        first = last


class Notation(Enum):
    PATTERN = "PATTERN"  # also written EVENT: a lone name in SEQ is a type
    SEQUENCE = "SEQUENCE"  # a lone name is a variable of any type


@dataclass(frozen=True, slots=True)
class Pattern(Node):
    """The parts of SEQ in order. `bare` means a single part without SEQ; such a query may use attribute names without a
    variable. `without` has negative components that forbid events between the first and the last event of a match.
    """

    notation: Notation
    parts: tuple[Component | Group, ...]
    bare: bool = False
    without: tuple[Component, ...] = ()

    @property
    def components(self) -> tuple[Component, ...]:
        """All components in the order of the text, and then those after WITHOUT."""
        return leaves(self.parts) + tuple(leaf for _, leaf in self.forbidden)

    @property
    def nested(self) -> tuple[range, ...]:
        """For each negated SEQ, the numbers of its components."""
        return tuple(_nested(self.parts))

    @property
    def forbidden(self) -> tuple[tuple[range, Component], ...]:
        """Each component after WITHOUT, with the numbers of the components between whose events it forbids."""
        whole = range(len(leaves(self.parts)))
        return (*_forbidden(self.parts), *((whole, leaf) for leaf in self.without))


# ── Clauses ────────────────────────────────────────────────────────────────────────────────────────


class Strategy(Enum):
    STRICT_CONTIGUITY = "strict_contiguity"
    PARTITION_CONTIGUITY = "partition_contiguity"
    SKIP_TILL_NEXT_MATCH = "skip_till_next_match"
    SKIP_TILL_ANY_MATCH = "skip_till_any_match"
    CONTIGUITY = "contiguity"


class Contiguity(Enum):
    """Which events may come between an event of a match and the event bound before it."""

    STRICT = "strict"
    PARTITION = "partition"
    NEXT = "next"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Step(Node):
    """`b: next`, or `b[i]: next` for the further events of a repetition."""

    variable: str
    contiguity: Contiguity
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Selection(Node):
    """`skip_till_next_match(a, b[], c) { … }` has the strategy, and variables that the binder checks. `contiguity(b:
    next, c: any) { … }` has steps.
    """

    strategy: Strategy
    variables: tuple[str, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Within(Node):
    """A window: `WITHIN 12 hours`, `WITHIN 100` (ticks), `WITHIN :w`, `WITHIN 50 EVENTS`."""

    extent: Expr
    in_events: bool = False


@dataclass(frozen=True, slots=True)
class Item(Node):
    """An expression in RETURN or GROUP BY, perhaps with a name."""

    expression: Expr
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Return(Node):
    """`RETURN Name(expr AS col, …)`. The name of the event is optional: `RETURN a.x, b.y`."""

    name: str | None
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """`COUNT`, `COUNT AS DECIMAL`, `SUM(c.weight) AS total`. The function is in lower case."""

    function: str
    argument: Expr | None = None
    alias: str | None = None
    as_decimal: bool = False


class OutputForm(Enum):
    ALL = "ALL"
    NON_OVERLAPPING = "NON_OVERLAPPING"
    FIRST = "FIRST"
    SKIP_TO_FIRST = "SKIP TO FIRST"
    SKIP_TO_LAST = "SKIP TO LAST"
    COMPRESSED = "COMPRESSED"
    LATEST = "LATEST"
    FURTHEST = "FURTHEST"
    BEST = "BEST"


@dataclass(frozen=True, slots=True)
class Output(Node):
    form: OutputForm
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Threshold(Node):
    """`THRESHOLD 0.01`, `THRESHOLD 0.5 ON probability`."""

    value: Expr
    on_probability: bool = False


@dataclass(frozen=True, slots=True)
class Query(Node):
    """One query. Clauses that are not in the text are None or empty."""

    pattern: Pattern
    name: str | None = None
    selection: Selection | None = None
    where: Expr | None = None
    group_by: tuple[Item, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    having: Expr | None = None
    within: Within | None = None
    threshold: Threshold | None = None
    output: Output | None = None
    emit_on_change: bool = False
    returns: Return | None = None
    into: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script(Node):
    """Several queries, `name: PATTERN … ;`, in the order of the text."""

    queries: tuple[Query, ...]


# Characters that a query or an expression may have, and a whole script.
QUERY_CHARACTERS_MAX = 200_000
SCRIPT_CHARACTERS_MAX = 10_000_000
# Levels of nested brackets, and of nodes in the tree. Comparing, hashing, pickling and printing a tree all recurse;
# this keeps them far below Python's own limit. A chain of AND or OR is one node, so it may be as long as the text. A
# chain of + or * has one node per term.
DEPTH_MAX = 100
# More digits than any number type holds. It also stays below the limit of int().
NUMBER_DIGITS_MAX = 100
NUMBER_EXPONENT_MAX = 400
# Events that a quantifier may ask for.
EVENTS_MAX = 1_000_000_000


def check_depth(tree: Node, levels_max: int = DEPTH_MAX) -> None:
    """Raise an error for a tree that is too deep. The tree is traversed level by level, because recursion is not safe
    before this check.
    """
    level = [tree]
    for _ in range(levels_max):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    span = level[0].span
    raise QueryError(
        f"nested too deep: more than {levels_max} levels",
        start=span.start,
        end=span.end,
        hint="a chain of + or * is one level a term; split it with RETURN and INTO",
    )


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node."""
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (child for child in value if isinstance(child, Node))

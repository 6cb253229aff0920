"""Binds the names and types of algebra expressions, by symbolic execution with the typing of the binder.

From the sources of the expression upwards, each stream is a union of branches. The attributes of a branch are
expressions over slots, the current event and registers. So renaming, projection and extension cost nothing at run time,
because every later condition is already expressed in terms of input events (Theorem 3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from ouzel.algebra import model
from ouzel.algebra.model import (
    CURRENT,
    PARAMETERS,
    BoundAlgebra,
    BoundStream,
    Branch,
    Operand,
    Operator,
    Source,
    Step,
    moved,
    on_edge,
    register,
)
from ouzel.algebra.streams import (
    UNARY,
    Alias,
    Base,
    Extend,
    Fold,
    Iteration,
    Next,
    Placed,
    Project,
    Rename,
    Select,
    Stream,
    Union,
    bases,
    decode,
    encode,
    inputs_of,
    parsed,
    source_of,
    written,
)
from ouzel.algebra.text import to_text
from ouzel.bind import diagnostics as mistakes
from ouzel.bind.diagnostics import listed, nearest, quoted
from ouzel.bind.expressions import Expressions
from ouzel.bind.literals import Parameters
from ouzel.bind.model import NUMBERS, UNKNOWN, Attribute, Bound, Catalog, Component, Intrinsic, Kind, Type, parts
from ouzel.bind.names import Place, type_at
from ouzel.bind.schema import parse_type
from ouzel.bind.typing import Typing, common_type, described
from ouzel.errors import QueryError
from ouzel.lang import syntax
from ouzel.lang.syntax import Reference, Span

_PARTS_MAX = 10_000
_ITERATIONS_MAX = 64
# Types that kernels can carry from one iteration to the next.
_CARRIED = NUMBERS | {
    Kind.BOOL, Kind.DATE, Kind.TIMESTAMP, Kind.DURATION, Kind.STRING, Kind.BINARY, Kind.UNKNOWN, Kind.NULL,
}  # fmt: skip


def check(expression: Stream) -> None:
    """Check all names and types that can be checked with the columns that the streams declare."""
    bind(expression, Catalog())


def bind(
    expression: Stream,
    catalog: Catalog,
    *,
    name: str = "query",
    time: str | None = None,
    type: str | None = None,
    params: Mapping[str, Any] | None = None,
    parameter_types: Mapping[str, Type] | None = None,
) -> BoundAlgebra:
    """Bind an expression to an input. `time` and `type` name its columns, which are not attributes of typed streams.

    `params` are the values of `:name`. With `parameter_types` instead, parameters stay in the expression, and a table
    gives their values later.

    >>> from ouzel.algebra.streams import stream
    >>> quotes = stream("Stock", name="string", price="double")
    >>> bound = bind(quotes.next(quotes.select("price > 10")), Catalog())
    >>> [len(branch.steps) for branch in bound.streams[-1].branches]
    [1]
    """
    binder = _Binder(catalog, (time, type), params or {}, parameter_types, _resubscribed(expression))
    for derived in binder.derived:
        binder.streams.append(binder.stream(derived))
    binder.streams.append(binder.stream(expression))
    return BoundAlgebra(name, expression, tuple(binder.streams), catalog, dict(params or {}))


def _resubscribed(expression: Stream) -> list[Stream]:
    """The subexpressions whose events other automata read: right operands whose results have more than one event,
    innermost first.
    """
    found: dict[Stream, None] = {}

    def visit(node: Stream) -> None:
        for below in inputs_of(node):
            visit(below)
        if isinstance(node, Next | Fold):
            right = node.right
            while isinstance(right, UNARY):
                right = right.input
            if not isinstance(right, Base):
                found[right] = None

    visit(expression)
    return list(found)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of one condition or expression of the algebra, in place of `Names` of the binder."""

    source: mistakes.Source
    now: Callable[[str], Bound | None]
    # What `name.last` reads; None if it has no meaning here.
    before: Callable[[str], Bound | None] | None
    known: Collection[str]
    duration: Bound
    components: tuple[Component, ...] = ()

    def value(self, reference: Reference, place: Place, ranging: Any = None) -> Bound:
        names = reference.names
        if reference.index is not None or reference.default is not None:
            raise self.source.mistake(
                f"{quoted(names[0])} is a value of one event and cannot have an index",
                reference.span,
                f"write {names[0]}",
            )
        if len(names) > 1 and names[-1] == "last" and self.before is not None:
            name = ".".join(names[:-1])
            found = self.before(name)
            if found is None:
                raise self._no_last(name, reference.span)
            return found
        if names == ("DUR",) and self.now("DUR") is None:
            return replace(self.duration, span=reference.span)
        # An attribute of a stream with an alias has a point in its name; what follows the name is a field.
        for count in range(len(names), 0, -1):
            found, rest = self.now(".".join(names[:count])), list(names[count:])
            if found is not None and (not rest or found.type.kind in (Kind.STRUCT, Kind.UNKNOWN)):
                return self._field(found, rest, reference) if rest else _at(found, reference.span)
        raise self._unknown(reference)

    def _field(self, found: Bound, rest: list[str], reference: Reference) -> Bound:
        inner = type_at({"": found.type}, ("", *rest))
        if inner is None or not isinstance(found, Attribute):
            raise self._unknown(reference)
        return replace(found, path=(*found.path, *rest), type=inner, span=reference.span)

    def event_field(self, function: str, reference: Reference, place: Place, ranging: Any) -> NoReturn:
        raise self.source.mistake(
            f"{function}(…) needs a variable of a pattern, and an expression of the algebra has no variables",
            reference.span,
            "DUR is how long the composite event lasts",
        )

    def kleene_variable(self, reference: Reference, function: str) -> NoReturn:
        raise self.source.mistake(
            f"{function}(…) must range over a component with +, and a stream of the algebra has none",
            reference.span,
            "compute aggregates with fold(…) and a step that extends its attributes",
        )

    def _no_last(self, name: str, span: Span) -> QueryError:
        first = f"give its first value: first={{{name!r}: …}}, in text FIRST … AS {name}"
        hint = first if name in self.known else nearest(name, self.known)
        return self.source.mistake(f"the instance has no attribute {quoted(name)} before this event", span, hint)

    def _unknown(self, reference: Reference) -> QueryError:
        what = ".".join(reference.names)
        if len(reference.names) > 1 and reference.names[-1] == "last":
            return self.source.mistake(
                f"{quoted(what)} cannot be used here",
                reference.span,
                ".last can be used in theta and step only",
            )
        hint = nearest(what, self.known) or nearest(reference.names[0], self.known)
        hint = hint or (f"it has {listed(list(self.known)[:12], 'and')}" if self.known else None)
        return self.source.mistake(f"the stream has no attribute {quoted(what)}", reference.span, hint)


def _at(expression: Bound, span: Span) -> Bound:
    return replace(expression, span=span)


@dataclass(frozen=True, slots=True)
class _OpenParameters(Parameters):
    """Parameters whose values come from a table with one query per row, so that they are references and not
    constants.
    """

    types: Mapping[str, Type] | None = None

    def constant(self, parameter: syntax.Parameter, source: mistakes.Source) -> Any:
        assert self.types is not None
        if parameter.name not in self.types:
            hint = nearest(parameter.name, self.types)
            raise source.mistake(f"there is no column for the parameter {quoted(parameter.name)}", parameter.span, hint)
        self.used.add(parameter.name)
        return Attribute(PARAMETERS, (parameter.name,), type=self.types[parameter.name], span=parameter.span)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The attributes of a stream: expressions by name. `open` maps prefixes of names to slots whose attributes are
    unknown: any other name with such a prefix is an attribute of the slot too.
    """

    named: Mapping[str, Bound]
    open: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, name: str) -> Bound | None:
        if name in self.named:
            return self.named[name]
        prefix = max((one for one in self.open if name.startswith(one)), key=len, default=None)
        if prefix is None or name == "DUR":
            return None
        return Attribute(self.open[prefix], tuple(name.removeprefix(prefix).split(".")), type=UNKNOWN)

    def over(self, below: _Columns) -> _Columns:
        """These attributes, and those attributes of `below` that they do not replace."""
        # Where the event's columns are unknown, a name that the user gave to an attribute of the instance means that
        # attribute, unless it has the alias of the event's stream.
        aliases = tuple(prefix for prefix in self.open if prefix)
        kept = {name: value for name, value in below.named.items() if not name.startswith(aliases)}
        return _Columns({**kept, **self.named}, {**below.open, **self.open})

    def moved(self, source: int, target: int) -> _Columns:
        named = {name: moved(value, source, target) for name, value in self.named.items()}
        return _Columns(named, {prefix: target if slot == source else slot for prefix, slot in self.open.items()})

    def under(self, alias: str) -> _Columns:
        """These attributes, with the alias of their stream in front of their names."""
        named = {f"{alias}.{name}": value for name, value in self.named.items()}
        return _Columns(named, {f"{alias}.{prefix}": slot for prefix, slot in self.open.items()})


class _Binder:
    def __init__(
        self,
        catalog: Catalog,
        hidden: tuple[str | None, str | None],
        params: Mapping[str, Any],
        parameter_types: Mapping[str, Type] | None,
        derived: list[Stream],
    ) -> None:
        self.catalog = catalog
        self.hidden = hidden
        self.derived = derived
        self.streams: list[BoundStream] = []
        self._time = catalog.time.type
        self._parameters = Parameters(params)
        if parameter_types is not None:
            self._parameters = _OpenParameters(params, types=parameter_types)

    # ── Streams ────────────────────────────────────────────────────────────────────────────────────

    def stream(self, expression: Stream) -> BoundStream:
        branches = self._branches(expression, expression)
        first = branches[0]
        return BoundStream(expression, branches, {name: value.type for name, value in first.columns.items()})

    def _branches(self, expression: Stream, top: Stream) -> tuple[Branch, ...]:
        if expression in self.derived and expression is not top and expression != top:
            number = self.derived.index(expression)
            columns = self._derived_columns(number, 0)
            return (Branch(Operand(Source(derived=number)), columns=columns.named, open=columns.open),)
        match expression:
            case Base():
                columns = self._base_columns(expression, 0)
                return (Branch(Operand(Source(base=expression)), columns=columns.named, open=columns.open),)
            case Union(left=left, right=right):
                return self._union(expression, self._branches(left, top), self._branches(right, top))
            case Next(left=left, right=right, theta=theta):
                operand, columns = self._operand(right)
                return tuple(self._next(b, operand, columns, theta) for b in self._branches(left, top))
            case Fold(left=left, right=right):
                operand, columns = self._operand(right)
                return tuple(self._fold(b, operand, columns, expression) for b in self._branches(left, top))
        assert isinstance(expression, UNARY)
        return tuple(self._unary(branch, expression) for branch in self._branches(expression.input, top))

    def _base_columns(self, base: Base, component: int) -> _Columns:
        attributes = self._attributes(base)
        if attributes is not None and base.start is not None and base.start not in {*attributes, *self.hidden}:
            raise QueryError(
                f"there is no column {quoted(base.start)} with the start of events",
                hint=nearest(base.start, attributes),
            )
        if base.columns is not None:
            declared = {name: parse_type(text) for name, text in base.columns}
            attributes = declared if attributes is None else _compared(base, declared, attributes)
        if attributes is None:
            return _Columns({}, {"": component})
        time, kind = self.hidden
        hidden = {time, base.start, kind if base.type is not None else None}
        return _Columns({n: Attribute(component, (n,), type=t) for n, t in attributes.items() if n not in hidden})

    def _attributes(self, base: Base) -> Mapping[str, Type] | None:
        if self.catalog.open:
            return None
        if base.type is not None:
            declared = self.catalog.declared
            if declared is not None and self.catalog.common is None and base.type not in declared:
                raise QueryError(
                    f"there is no event type {quoted(base.type)}",
                    **_place(base.type, base),
                    hint=nearest(base.type, declared),
                )
            return self.catalog.attributes(base.type)
        if self.catalog.declared is None:
            return self.catalog.common
        # For every type: the attributes that all types have.
        shared: dict[str, Type] | None = None
        for attributes in self.catalog.declared.values():
            here = attributes if shared is None else {n: t for n, t in shared.items() if attributes.get(n) == t}
            shared = dict(here)
        return shared

    def _derived_columns(self, number: int, component: int) -> _Columns:
        stream = self.streams[number]
        named: dict[str, Bound] = {n: Attribute(component, (n,), type=t) for n, t in stream.columns.items()}
        return _Columns(named, dict.fromkeys(stream.branches[0].open, component))

    def _operand(self, expression: Stream) -> tuple[Operand, _Columns]:
        """(operand, attributes) of a right operand: its unary operators become conditions on the current event."""
        if isinstance(expression, UNARY):
            operand, columns = self._operand(expression.input)
            names = self._names("", columns, None, columns.named, CURRENT, CURRENT)
            columns, condition = self._applied(expression, columns, names)
            if condition is not None:
                operand = replace(operand, conditions=(*operand.conditions, condition))
            return operand, columns
        if isinstance(expression, Base):
            return Operand(Source(base=expression)), self._base_columns(expression, CURRENT)
        number = self.derived.index(expression)
        return Operand(Source(derived=number)), self._derived_columns(number, CURRENT)

    # ── Unary operators ────────────────────────────────────────────────────────────────────────────

    def _unary(self, branch: Branch, operator: Stream) -> Branch:
        columns = _Columns(branch.columns, branch.open)
        last = len(branch.steps)
        names = self._names("", columns, None, columns.named, 0, last)
        columns, condition = self._applied(operator, columns, names)
        branch = replace(branch, columns=columns.named, open=columns.open)
        return branch if condition is None else self._with_condition(branch, condition)

    def _with_condition(self, branch: Branch, condition: Bound) -> Branch:
        slot = len(branch.steps)
        if not branch.steps:
            said = on_edge(condition, slot, None, None)
            return replace(branch, start=replace(branch.start, conditions=(*branch.start.conditions, said)))
        step = branch.steps[-1]
        iterations = tuple(
            replace(each, results=(*each.results, on_edge(condition, slot, step, each))) for each in step.iterations
        )
        return replace(branch, steps=(*branch.steps[:-1], replace(step, iterations=iterations)))

    def _applied(self, operator: Stream, columns: _Columns, names: _Names) -> tuple[_Columns, Bound | None]:
        """(attributes, condition): the attributes after a unary operator, and the operator's condition on the event."""
        match operator:
            case Select(condition=text):
                return columns, self._condition(text, names)
            case Project(names=kept):
                for name in kept:
                    self._must_have(columns, name, operator)
                return _Columns({name: columns(name) for name in dict.fromkeys(kept)}), None  # type: ignore[misc]
            case Rename(names=pairs):
                return self._renamed(columns, dict(pairs), operator), None
            case Extend(values=values):
                more = {name: self._value(text, names) for name, text in values}
                return _Columns({**columns.named, **more}, columns.open), None
            case Alias(name=name):
                return columns.under(name), None
        raise AssertionError(f"{operator!r} is not unary")

    def _renamed(self, columns: _Columns, new: Mapping[str, str], operator: Stream) -> _Columns:
        for name in new:
            self._must_have(columns, name, operator)
        named = dict(columns.named)
        found = {name: columns(name) for name in new}
        for name in new:
            named.pop(name, None)
        for name, target in new.items():
            if target in named:
                raise QueryError(
                    f"{quoted(name)} cannot be renamed to {quoted(target)}: the stream has such an attribute already",
                    **_place(next(old for old in new if old == name), operator),
                    hint=f"project it away first, or rename {quoted(target)} as well",
                )
            value = found[name]
            assert value is not None
            named[target] = value
        return _Columns(named, columns.open)

    def _must_have(self, columns: _Columns, name: str, operator: Stream) -> None:
        if columns(name) is None:
            hint = nearest(name, columns.named) or f"it has {listed(list(columns.named)[:12], 'and')}"
            raise QueryError(f"the stream has no attribute {quoted(name)}", **_place(name, operator), hint=hint)

    # ── Binary operators ───────────────────────────────────────────────────────────────────────────

    def _union(self, union: Union, left: tuple[Branch, ...], right: tuple[Branch, ...]) -> tuple[Branch, ...]:
        branches = (*left, *right)
        if any(branch.open for branch in branches):
            return branches
        expected = left[0].columns
        for branch in right:
            if set(branch.columns) != set(expected):
                odd = sorted(set(branch.columns) ^ set(expected))[0]
                side = "left" if odd in expected else "right"
                raise QueryError(
                    f"the streams of a union must have the same attributes; only the {side} one has {quoted(odd)}",
                    hint="rename(…) and project(…) make them alike",
                )
        types: dict[str, Type] = {}
        for name in expected:
            kind: Type | None = expected[name].type
            for branch in branches:
                found = None if kind is None else common_type(kind, branch.columns[name].type)
                if found is None:
                    one, other = described(expected[name].type), described(branch.columns[name].type)
                    raise QueryError(f"{quoted(name)} is {one} in one stream of the union and {other} in the other")
                kind = found
            assert kind is not None
            types[name] = kind
        typing = self._typing("")
        return tuple(
            replace(branch, columns={name: typing.converted(branch.columns[name], types[name]) for name in expected})
            for branch in branches
        )

    def _next(self, branch: Branch, operand: Operand, event: _Columns, theta: str | None) -> Branch:
        slot = len(branch.steps) + 1
        before = _Columns(branch.columns, branch.open)
        joint = event.over(before)
        tests = self._theta(theta, joint, before, event)
        columns = joint.moved(CURRENT, slot)
        step = Step(Operator.NEXT, operand, (model.Iteration(theta=tests),), len(branch.register_types))
        return replace(branch, steps=(*branch.steps, step), columns=columns.named, open=columns.open)

    def _theta(self, theta: str | None, joint: _Columns, before: _Columns, event: _Columns) -> tuple[Bound, ...]:
        if theta is None:
            return ()
        names = self._names(theta, joint, before, {**before.named, **event.named}, 0, CURRENT)
        return (self._condition(theta, names),)

    def _fold(self, branch: Branch, operand: Operand, event: _Columns, fold: Fold) -> Branch:
        slot = len(branch.steps) + 1
        first_register = len(branch.register_types)
        before = self._first_values(_Columns(branch.columns, branch.open), fold, slot - 1)
        first, after = self._iteration(fold, before, event)
        registers: dict[str, Type] = {}
        for _ in range(_ITERATIONS_MAX):
            carried = self._carried(after, registers, slot, first_register)
            later, again = self._iteration(fold, carried, event)
            if set(again.named) != set(after.named):
                odd = sorted(set(again.named) ^ set(after.named))[0]
                raise QueryError(
                    f"all iterations of fold(…) must give the same attributes; {quoted(odd)} is missing in some",
                    **_place(_said(fold.step), fold.step),
                    hint="keep in the step what theta and step read",
                )
            if not self._widen_registers(after, again, carried, registers, slot):
                break
        else:
            raise QueryError(
                "the attributes of fold(…) must keep their types from one iteration to the next",
                **_place(_said(fold.step), fold.step),
            )
        typing = self._typing("")
        names = list(registers)
        iterations = tuple(
            replace(each, registers=tuple(typing.converted(columns.named[n], registers[n]) for n in names))
            for each, columns in ((first, after), (later, again))
        )
        step = Step(Operator.FOLD, operand, iterations, first_register)
        return replace(
            branch,
            steps=(*branch.steps, step),
            columns=carried.named,
            open=carried.open,
            register_types=(*branch.register_types, *registers.values()),
        )

    def _first_values(self, before: _Columns, fold: Fold, last: int) -> _Columns:
        given: dict[str, Bound] = {}
        for name, text in fold.first:
            if name in before.named:
                raise QueryError(
                    f"first= cannot give {quoted(name)}: the stream has this attribute, and its value is the first",
                    **_place(text, None),
                    hint="leave it out, or rename the attribute of the stream",
                )
            given[name] = self._value(text, self._names(text, before, None, before.named, 0, last))
        return _Columns({**before.named, **given}, before.open)

    def _iteration(self, fold: Fold, before: _Columns, event: _Columns) -> tuple[model.Iteration, _Columns]:
        """(iteration, attributes): one iteration of a fold, for an instance with the attributes `before`, and the
        attributes after its step.
        """
        columns = event.over(before)
        theta = self._theta(fold.theta, columns, before, event)
        keeps: list[Bound] = []
        for operator in _operators_of(fold.step):
            names = self._names("", columns, before, {**before.named, **columns.named}, 0, CURRENT)
            columns, condition = self._applied(operator, columns, names)
            if condition is not None:
                keeps.append(condition)
        return model.Iteration(theta=theta, keeps=tuple(keeps)), columns

    def _carried(self, after: _Columns, registers: dict[str, Type], slot: int, first_register: int) -> _Columns:
        """The attributes of an instance between iterations: expressions over its events where possible, otherwise
        registers.
        """
        named: dict[str, Bound] = {}
        for name, value in after.named.items():
            read = _components(value)
            if name not in registers and CURRENT in read and read != {CURRENT}:
                registers[name] = value.type
            if name not in registers:
                named[name] = moved(value, CURRENT, slot)
        for number, (name, kind) in enumerate(registers.items()):
            named[name] = register(first_register + number, kind)
        ordered = {name: named[name] for name in after.named}
        return _Columns(ordered, after.moved(CURRENT, slot).open)

    def _widen_registers(
        self, after: _Columns, again: _Columns, carried: _Columns, registers: dict[str, Type], slot: int
    ) -> bool:
        """Add registers for attributes that need one, or give a register a wider type. Returns whether anything
        changed.
        """
        changed = False
        for name in after.named:
            if name not in registers and moved(again.named[name], CURRENT, slot) == carried.named[name]:
                continue
            kinds = after.named[name].type, again.named[name].type
            kind = common_type(*kinds)
            if kind is None or kind.kind not in _CARRIED:
                raise QueryError(
                    f"fold(…) cannot carry {quoted(name)} from one iteration to the next: it is "
                    f"{described(kinds[0])} first and {described(kinds[1])} then"
                )
            if registers.get(name) != kind:
                registers[name] = kind
                changed = True
        return changed

    # ── Texts ──────────────────────────────────────────────────────────────────────────────────────

    def _names(
        self,
        text: str,
        now: Callable[[str], Bound | None],
        before: Callable[[str], Bound | None] | None,
        known: Collection[str],
        first: int,
        last: int,
    ) -> _Names:
        return _Names(mistakes.Source(source_of(text)), now, before, known, model.duration(first, last, self._time))

    def _typing(self, text: str) -> Typing:
        return Typing(mistakes.Source(source_of(text)), self.catalog.time)

    def _expressions(self, text: str, names: _Names) -> Expressions:
        source = mistakes.Source(source_of(text))
        here: Any = replace(names, source=source)
        return Expressions(source, here, Typing(source, self.catalog.time), self._parameters, Place.WHERE, {})

    def _condition(self, text: str, names: _Names) -> Bound:
        return self._small(self._expressions(text, names).condition(parsed(text)), text)

    def _value(self, text: str, names: _Names) -> Bound:
        return self._small(self._expressions(text, names).value(parsed(text)), text)

    def _small(self, expression: Bound, text: str) -> Bound:
        # An attribute that is extended repeatedly is substituted where it is used, which could double it each time.
        if sum(1 for _ in parts(expression)) > _PARTS_MAX:
            raise QueryError("this expression is too large once its attributes are filled in", text=source_of(text))
        return expression


def _place(given: str, operator: Stream | None) -> dict[str, Any]:
    """The place of an error: in the text of a query if the name or expression comes from one, otherwise in an
    operator.
    """
    if isinstance(given, Placed):
        return {"text": given.source, "start": given.span.start, "end": given.span.end}
    return {"text": given if operator is None else written(operator)}


def _said(step: Stream) -> str:
    """The text of the first expression in a step."""
    for operator in _operators_of(step):
        match operator:
            case Select(condition=text) | Extend(values=((_, text), *_)):
                return text
    return ""


def _operators_of(step: Stream) -> Iterator[Stream]:
    """The operators of a step in the order in which they are applied."""
    if isinstance(step, Iteration):
        return
    assert isinstance(step, UNARY)
    yield from _operators_of(step.input)
    yield step


def _components(expression: Bound) -> set[int]:
    return {part.component for part in parts(expression) if isinstance(part, Attribute | Intrinsic)}


def _compared(base: Base, declared: Mapping[str, Type], real: Mapping[str, Type]) -> dict[str, Type]:
    """The declared columns with their types in the input. Raises an error if a type does not fit its declaration."""
    for name, kind in declared.items():
        if name not in real:
            raise QueryError(
                f"the input has no column {quoted(name)}, which the stream {base!r} declares", hint=nearest(name, real)
            )
        found = real[name]
        alike = found.kind is kind.kind or {found.kind, kind.kind} <= NUMBERS
        if not alike and not {found.kind, kind.kind} & {Kind.UNKNOWN, Kind.NULL}:
            raise QueryError(f"column {quoted(name)} is {found}, but the stream {base!r} declares it {kind}")
    return {name: real[name] for name in declared}


@dataclass(frozen=True)
class AlgebraQuery:
    """An algebra expression with a name."""

    name: str
    expression: Stream
    params: Mapping[str, Any] = field(default_factory=dict)
    types: None = None

    @property
    def text(self) -> str:
        return to_text(self.expression)

    @property
    def event_types(self) -> set[str]:
        """The event types that the expression names."""
        return {base.type for base in bases(self.expression) if base.type is not None}

    def bind(self, catalog: Catalog, *, time: str | None = None, type: str | None = None) -> BoundAlgebra:
        """Bind the expression to an input whose columns are known."""
        return bind(self.expression, catalog, name=self.name, time=time, type=type, params=self.params)

    def encoded(self) -> dict[str, Any]:
        """The query as plain JSON values, including its parameters."""
        return {"name": self.name, "expression": encode(self.expression), "params": dict(self.params)}

    @classmethod
    def decoded(cls, body: Mapping[str, Any]) -> AlgebraQuery:
        return cls(body["name"], decode(body["expression"]), dict(body["params"]))

"""Binds expressions: from syntax to typed expressions, with one method for each kind of node."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind import literals
from ouzel.bind.diagnostics import Source, nearest, quoted
from ouzel.bind.functions import AGGREGATES, EVENT_FUNCTIONS, FUNCTIONS, LENGTHS_HINT, OTHER_NAMES, Accepts, Function
from ouzel.bind.literals import DECIMAL_DIGITS_MAX, Parameters
from ouzel.bind.model import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    NULL,
    NUMBERS,
    STRING,
    UNKNOWN,
    Aggregation,
    Attribute,
    Bound,
    CompoundComparison,
    Constant,
    Element,
    Intrinsic,
    Kind,
    Presence,
    Scope,
    Type,
    parts,
)
from ouzel.bind.names import Names, Place, type_at
from ouzel.bind.typing import IN_SECONDS, Typing, described, operation
from ouzel.lang import syntax
from ouzel.lang.syntax import IndexKind, Reference, Span

_ROUND_DIGITS_MAX = 30
_REPEATED_PARTS_MAX = 10_000
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_KINDS = {
    Accepts.STRING: {Kind.STRING},
    Accepts.LIKE_PATTERN: {Kind.STRING},
    Accepts.REGULAR_EXPRESSION: {Kind.STRING},
    Accepts.NETWORK: {Kind.STRING},
    Accepts.VALUE: NUMBERS | {Kind.STRING, Kind.BOOL, Kind.DATE, Kind.TIMESTAMP},
    Accepts.NUMBER: NUMBERS,
    Accepts.NUMBER_OR_DURATION: NUMBERS | {Kind.DURATION},
    Accepts.DOUBLE: NUMBERS,
    Accepts.INTEGER: {Kind.INT},
    Accepts.INTEGER_CONSTANT: {Kind.INT},
    Accepts.DATE_OR_TIMESTAMP: {Kind.DATE, Kind.TIMESTAMP},
    Accepts.TIMESTAMP: {Kind.TIMESTAMP},
    Accepts.CONDITION: {Kind.BOOL},
    Accepts.LIST: {Kind.LIST},
}
# The type of a null literal if its neighbours do not give it one.
_TYPE_OF_NULL = {
    Accepts.LIKE_PATTERN: STRING,
    Accepts.REGULAR_EXPRESSION: STRING,
    Accepts.NETWORK: STRING,
    Accepts.VALUE: STRING,
    Accepts.STRING: STRING,
    Accepts.CONDITION: BOOL,
    Accepts.DOUBLE: FLOAT,
    Accepts.INTEGER: INT,
}


def nodes(root: syntax.Node) -> Iterator[syntax.Node]:
    """The node and all nodes below it, found without recursion."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(syntax.children(node))


def parameter_names(query: syntax.Node) -> frozenset[str]:
    """The parameters that a query uses. In a script, each query gets only its own.

    >>> from ouzel.lang import parse
    >>> sorted(parameter_names(parse("PATTERN Shelf WHERE n > :low WITHIN :window")))
    ['low', 'window']
    """
    return frozenset(node.name for node in nodes(query) if isinstance(node, syntax.Parameter))


@dataclass(frozen=True)
class Expressions:
    """Binds the expressions of one clause. `defaults` collects the defaults of AYAC, such as `x.id[z.id]`."""

    source: Source
    names: Names
    typing: Typing
    parameters: Parameters
    place: Place
    defaults: MutableMapping[Attribute | Intrinsic, Bound]
    ranging: Scope | None = None  # set inside an aggregate
    # The elements that the conditions of any(…) around this expression name.
    elements: Mapping[str, Element] = field(default_factory=dict)

    def bound(self, node: syntax.Expr) -> Bound:
        """The typed expression. A number with a point, or a duration, may still get its type from the other operand."""
        if isinstance(node, Reference) and node.names[0] in self.elements and node.index is None:
            return self._element(node)
        result: Bound = getattr(self, _METHOD_OF_NODE[type(node)])(node)
        return result

    def value(self, node: syntax.Expr) -> Bound:
        """The typed expression, for an expression whose type no other operand decides."""
        return self.typing.lone(self.bound(node))

    def condition(self, node: syntax.Expr) -> Bound:
        """A typed expression that is true, false or unknown."""
        result = self.bound(node)
        if result.type.kind not in (Kind.BOOL, Kind.UNKNOWN, Kind.NULL):
            raise self.source.mistake(f"a condition must be true or false, got {described(result.type)}", node.span)
        return result if result.type != NULL else replace(result, type=BOOL)

    # ── Leaves ─────────────────────────────────────────────────────────────────────────────────────

    def _literal(self, node: syntax.Literal) -> Bound:
        if node.value is None:
            return Constant(None, type=NULL, span=node.span)
        if isinstance(node.value, bool):
            return Constant(node.value, type=BOOL, span=node.span)
        if isinstance(node.value, str):
            return literals.text_constant(node.value, node.span, self.source)
        return literals.number(node.value, node.span, self.source)

    def _percent(self, node: syntax.Percent) -> Bound:
        return literals.number(literals.percentage(node.value), node.span, self.source)

    def _temporal(self, node: syntax.Temporal) -> Bound:
        return literals.temporal(node.kind, node.text, node.span, self.source)

    def _duration(self, node: syntax.Duration) -> Bound:
        return literals.duration(node.amount, node.unit, node.span, self.source)

    def _parameter(self, node: syntax.Parameter) -> Bound:
        return self.parameters.constant(node, self.source)

    def _equivalence(self, node: syntax.Equivalence) -> Bound:
        written = f"[{'.'.join(node.names)}]"
        raise self.source.mistake(
            f"{written} must be a condition of its own, joined to the rest by AND",
            node.span,
            "it cannot be under OR or NOT, or outside WHERE",
        )

    def _reference(self, node: Reference) -> Bound:
        value = self.names.value(node, self.place, self.ranging)
        if node.default is not None:
            self._keep_default(node, value)
        return value

    def _keep_default(self, node: Reference, value: Bound) -> None:
        assert node.default is not None
        component = self.names.components[value.component] if isinstance(value, Attribute | Intrinsic) else None
        if component is None or component.kleene or component.negated or not isinstance(value, Attribute | Intrinsic):
            what = "a negated component" if component is not None and component.negated else "a component with +"
            raise self.source.mistake(
                f"{what} cannot have a default in brackets", node.span, "a default is for one event that may be missing"
            )
        default = self.bound(node.default)
        default = self.typing.unified([value, default], node.span, "combine")[1]
        if default.type != value.type and UNKNOWN not in (default.type, value.type):
            raise self.source.mistake(
                f"the default is {described(default.type)}, but the attribute is {described(value.type)}",
                node.default.span,
            )
        if self.defaults.setdefault(value, default) != default:
            written = ".".join(node.names)
            raise self.source.mistake(
                f"{quoted(written)} has two different defaults", node.span, "give it the same default everywhere"
            )

    # ── Operators ──────────────────────────────────────────────────────────────────────────────────

    def _unary(self, node: syntax.Unary) -> Bound:
        if node.operator == "NOT":
            return operation("not", [self.condition(node.operand)], BOOL, node.span)
        # The smallest integer is written as minus a number that does not fit.
        if isinstance(node.operand, syntax.Literal) and type(node.operand.value) is int:
            return literals.number(-node.operand.value, node.span, self.source)
        return self.typing.negated(self.bound(node.operand), node.span)

    def _binary(self, node: syntax.Binary) -> Bound:
        left, right = self.bound(node.left), self.bound(node.right)
        if node.operator in _COMPARISONS:
            return self.typing.comparison(node.operator, [left, right], node.span)
        return self.typing.arithmetic(node.operator, left, right, node.span)

    def _logical(self, node: syntax.Logical) -> Bound:
        return operation(node.operator.lower(), [self.condition(o) for o in node.operands], BOOL, node.span)

    def _in(self, node: syntax.In) -> Bound:
        operands = [self.bound(item) for item in (node.operand, *node.items)]
        return self._perhaps_not(self.typing.comparison("in", operands, node.span), node.negated)

    def _between(self, node: syntax.Between) -> Bound:
        operands = [self.bound(item) for item in (node.operand, node.low, node.high)]
        self._check_repeated(operands[0], 2, "BETWEEN", node.span)
        for operand in operands:
            self.typing.check_comparable(operand.type, operand.span)
        value, low, high = self.typing.unified(operands, node.span, "compare")
        if value.type.kind is Kind.DECIMAL:
            # Comparing three scales at once may take more digits than a decimal has; two at a time are exact.
            value, low, high = operands
        above = self.typing.comparison("<" if node.negated else ">=", [value, low], node.span)
        below = self.typing.comparison(">" if node.negated else "<=", [value, high], node.span)
        return CompoundComparison("or" if node.negated else "and", (above, below), type=BOOL, span=node.span)

    def _like(self, node: syntax.Like) -> Bound:
        value = self._argument(self.bound(node.operand), Accepts.STRING, "LIKE")
        pattern = self._argument(self.bound(node.pattern), Accepts.STRING, "LIKE")
        # The parameters of a template have no values yet.
        if not isinstance(pattern, Constant) and not isinstance(node.pattern, syntax.Parameter):
            raise self.source.mistake("the pattern of LIKE must be a literal or a parameter", pattern.span)
        escape = "\\" if node.escape is None else node.escape
        if len(escape) != 1:
            raise self.source.mistake("the escape of LIKE must be one character", node.span)
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            self._check_like(pattern.value, escape, pattern.span)
        result = operation("like", [value, pattern, Constant(escape, type=STRING, span=node.span)], BOOL, node.span)
        return self._perhaps_not(result, node.negated)

    def _check_like(self, pattern: str, escape: str, span: Span) -> None:
        position = 0
        while position < len(pattern):
            if pattern[position] == escape:
                if pattern[position + 1 : position + 2] not in ("%", "_", escape):
                    raise self.source.mistake(
                        f"in LIKE the escape {quoted(escape)} must come before %, _ or itself", span
                    )
                position += 1
            position += 1

    def _is_null(self, node: syntax.IsNull) -> Bound:
        return self._perhaps_not(operation("is_null", [self.value(node.operand)], BOOL, node.span), node.negated)

    def _presence(self, node: syntax.Presence) -> Bound:
        if node.variable not in self.names.variables:
            raise self.source.mistake(
                f"there is no variable {quoted(node.variable)}", node.span, self.names.variables_hint(node.variable)
            )
        component = self.names.components[self.names.variables[node.variable]]
        if component.negated:
            raise self.source.mistake(f"{quoted(node.variable)} is negated, so it is never in a match", node.span)
        if self.place in (Place.WHERE, Place.HAVING):
            raise self.source.mistake(
                f"IS PRESENT and IS ABSENT cannot be used in {self.place.value}",
                node.span,
                "in WHERE a condition on an absent variable holds; ask in RETURN, AGG or GROUP BY",
            )
        always = all(any(s.component == component.position for s in reading) for reading in self.names.readings)
        found = (
            Constant(True, type=BOOL, span=node.span)
            if always
            else Presence(component.position, type=BOOL, span=node.span)
        )
        return self._perhaps_not(found, node.absent)

    def _perhaps_not(self, comparison: Bound, negated: bool) -> Bound:
        return operation("not", [comparison], BOOL, comparison.span) if negated else comparison

    # ── Lists ──────────────────────────────────────────────────────────────────────────────────────

    def _any_element(self, node: syntax.AnyElement) -> Bound:
        listed = self._list(self.value(node.operand), "any")
        if node.variable in self.names.variables or node.variable in self.elements:
            raise self.source.mistake(
                f"{quoted(node.variable)} is already a variable", node.span, "give the element another name"
            )
        element = self._element_of(listed, node.variable)
        inner = replace(self, elements={**self.elements, node.variable: element})
        return operation("any", [listed, inner.condition(node.condition)], BOOL, node.span)

    def _list(self, operand: Bound, function: str) -> Bound:
        if operand.type.kind in (Kind.LIST, Kind.UNKNOWN, Kind.NULL):
            return operand
        hint = LENGTHS_HINT if function == "size" else "write single values in parentheses: x IN (1, 2)"
        raise self.source.mistake(f"{function} takes a list here, got {described(operand.type)}", operand.span, hint)

    def _element_of(self, listed: Bound, name: str) -> Element:
        kind = listed.type.fields[0][1] if listed.type.kind is Kind.LIST else UNKNOWN
        return Element(len(self.elements), name, type=kind, span=listed.span)

    def _element(self, node: Reference) -> Bound:
        element = self.elements[node.names[0]]
        kind = type_at({"": element.type}, ("", *node.names[1:]))
        if kind is None:
            raise self.source.mistake(
                f"{quoted(node.names[0])} is {described(element.type)} and has no field "
                f"{quoted('.'.join(node.names[1:]))}",
                node.span,
                nearest(node.names[1], (name for name, _ in element.type.fields)),
            )
        return replace(element, path=node.names[1:], type=kind, span=node.span)

    def _contains_element(self, listed: Bound, value: Bound, span: Span) -> Bound:
        """Whether a list contains a value, as Spark's array_contains: null if the value is null, even for an empty
        list.
        """
        listed = self._list(self.typing.lone(listed), "IN")
        equal = self.typing.comparison("=", [self._element_of(listed, ""), value], span)
        found = operation("any", [listed, equal], BOOL, span)
        if isinstance(value, Constant) and value.value is not None:
            return found
        unknown = operation("is_null", [self.typing.lone(value)], BOOL, span)
        return operation("case", [unknown, Constant(None, type=BOOL, span=span), found], BOOL, span)

    def _case(self, node: syntax.Case) -> Bound:
        conditions: list[Bound] = []
        operand = None if node.operand is None else self.bound(node.operand)
        if operand is not None:
            self._check_repeated(operand, len(node.whens), "CASE", node.span)
        for when in node.whens:
            if node.operand is None:
                conditions.append(self.condition(when.condition))
            else:
                assert operand is not None
                conditions.append(self.typing.comparison("=", [operand, self.bound(when.condition)], when.span))
        results = [self.bound(when.result) for when in node.whens]
        results.append(self.bound(node.otherwise) if node.otherwise else Constant(None, type=NULL, span=node.span))
        return self._chosen(conditions, results, node.span)

    def _check_repeated(self, operand: Bound, times: int, written: str, span: Span) -> None:
        """Raise an error for a large operand that would be repeated in several comparisons, because nesting would
        multiply it.
        """
        if sum(1 for _ in parts(operand)) * times > _REPEATED_PARTS_MAX:
            raise self.source.mistake(f"the operand of {written} is too large", span)

    def _chosen(self, conditions: Sequence[Bound], results: Sequence[Bound], span: Span) -> Bound:
        """A `case` expression whose results are converted to one type."""
        results = [self.typing.lone(result) for result in self.typing.unified(results, span, "combine")]
        kinds = [result.type for result in results if result.type != NULL]
        operands = [part for pair in zip(conditions, results, strict=False) for part in pair]
        return operation("case", [*operands, results[-1]], kinds[0] if kinds else NULL, span)

    # ── Calls ──────────────────────────────────────────────────────────────────────────────────────

    def _call(self, node: syntax.Call) -> Bound:
        name = node.function
        if name in EVENT_FUNCTIONS:
            if len(node.arguments) != 1 or not isinstance(node.arguments[0], Reference):
                raise self.source.mistake(f"{name}(…) takes one event", node.span, f"write {name}(v) for a variable v")
            return replace(self.names.event_field(name, node.arguments[0], self.place, self.ranging), span=node.span)
        if name in AGGREGATES:
            return self._aggregate(node)
        function = FUNCTIONS.get(name)
        if function is not None and function.name == "any":
            raise self.source.mistake(
                "any takes a list and a condition on its elements", node.span, "write any(v.list, t -> t > 3)"
            )
        if function is None:
            hint = OTHER_NAMES.get(name) or nearest(name, {*FUNCTIONS, *AGGREGATES, *EVENT_FUNCTIONS})
            raise self.source.mistake(f"there is no function {quoted(name)}", node.span, hint)
        count = len(node.arguments)
        if count < function.required or (count > len(function.arguments) and not function.repeats):
            raise self.source.mistake(
                f"wrong number of arguments for {quoted(name)}", node.span, f"write {function.signature}"
            )
        arguments = [self.bound(argument) for argument in node.arguments]
        if name == "array_contains" or (name == "contains" and _asks_a_list(arguments)):
            return self._contains_element(arguments[0], arguments[1], node.span)
        return self._function(function, arguments, node.span)

    def _function(self, function: Function, arguments: list[Bound], span: Span) -> Bound:
        accepts = [function.arguments[min(i, len(function.arguments) - 1)] for i in range(len(arguments))]
        alike = [i for i, kind in enumerate(accepts) if kind in (Accepts.ALIKE, Accepts.ORDERED)]
        if alike:
            for i, argument in zip(
                alike, self.typing.unified([arguments[i] for i in alike], span, "combine"), strict=True
            ):
                arguments[i] = self.typing.lone(argument)
        operands = [self._argument(a, kind, function.name) for a, kind in zip(arguments, accepts, strict=True)]
        if function.name == "if":
            return self._chosen(operands[:1], operands[1:], span)
        if function.name == "ilike":
            return self._ilike(operands[0], operands[1], span)
        if function.name == "nullif":
            for operand in operands:
                self.typing.check_comparable(operand.type, operand.span)
        return operation(function.name, operands, function.result(operands), span)

    def _ilike(self, value: Bound, pattern: Bound, span: Span) -> Bound:
        """`lower(value) LIKE lower(pattern)`, as in Spark."""
        assert isinstance(pattern, Constant)
        if isinstance(pattern.value, str):
            self._check_like(pattern.value, "\\", pattern.span)
            pattern = replace(pattern, value=pattern.value.lower())
        lowered = operation("lower", [value], STRING, value.span)
        return operation("like", [lowered, pattern, Constant("\\", type=STRING, span=span)], BOOL, span)

    def _argument(self, argument: Bound, accepts: Accepts, name: str) -> Bound:
        """An argument, checked to have an accepted type, and converted to a float if the function needs floats."""
        argument = self.typing.lone(argument)
        kind = argument.type
        if accepts is Accepts.ORDERED:
            self.typing.check_comparable(kind, argument.span)
            if kind == BOOL:
                raise self.source.mistake("booleans have no order", argument.span)
        if accepts in (Accepts.ALIKE, Accepts.ORDERED):
            return argument
        if accepts is Accepts.LIST:
            return self._list(argument, name)
        # A duration whose unit is not known yet may become an integer.
        is_open = kind == DURATION and Kind.INT in _KINDS[accepts]
        if not is_open and kind.kind not in _KINDS[accepts] and kind.kind not in (Kind.UNKNOWN, Kind.NULL):
            hint = IN_SECONDS if kind.kind is Kind.DURATION and Kind.INT in _KINDS[accepts] else None
            raise self.source.mistake(f"{name} takes {accepts.value} here, got {described(kind)}", argument.span, hint)
        self.typing.check_digits([argument])
        if accepts is Accepts.INTEGER_CONSTANT:
            is_small = (
                isinstance(argument, Constant)
                and isinstance(argument.value, int)
                and abs(argument.value) <= _ROUND_DIGITS_MAX
            )
            if not is_small:
                raise self.source.mistake(
                    f"{name} takes a literal from -{_ROUND_DIGITS_MAX} to {_ROUND_DIGITS_MAX} here", argument.span
                )
        if accepts in _CHECKED_TEXTS:
            self._check_text(argument, accepts, name)
        if kind == NULL:
            return self.typing.converted(argument, _TYPE_OF_NULL.get(accepts, NULL))
        is_known_number = accepts is Accepts.DOUBLE and kind.kind is not Kind.DURATION
        return self.typing.converted(argument, FLOAT) if is_known_number else argument

    def _check_text(self, argument: Bound, accepts: Accepts, name: str) -> None:
        """Raise an error for a text argument that is not constant, or that the function cannot read."""
        if not isinstance(argument, Constant):
            raise self.source.mistake(f"{name} takes {accepts.value} here", argument.span)
        reason = _CHECKED_TEXTS[accepts](argument.value) if isinstance(argument.value, str) else None
        if reason is not None:
            raise self.source.mistake(f"{name} cannot read {quoted(str(argument.value))}: {reason}", argument.span)

    # ── Aggregates over a component with + ─────────────────────────────────────────────────────────

    def _aggregate(self, node: syntax.Call) -> Bound:
        name = node.function
        if self.ranging is not None:
            raise self.source.mistake("an aggregate cannot be inside another", node.span)
        references = [part for part in nodes(node) if isinstance(part, Reference)]
        if len(node.arguments) != 1 or not references:
            raise self.source.mistake(
                f"{name}(…) takes the events of a component with +",
                node.span,
                f"write {name}(v[].x) or {name}(v[..i-1].x)",
            )
        components = [self.names.kleene_variable(reference, name) for reference in references]
        scopes = {
            self._scope(reference, component.variable)
            for reference, component in zip(references, components, strict=True)
        }
        if len(set(components)) > 1 or len(scopes) > 1:
            raise self.source.mistake(f"{name}(…) must range over one variable in one way", node.span)
        (scope,), component, argument = scopes, components[0], node.arguments[0]
        if isinstance(argument, Reference) and argument.names == (component.variable,):
            if name != "count":
                raise self.source.mistake(
                    f"{name}(…) needs an attribute", node.span, f"name one: {name}({component.variable}[].x)"
                )
            return Aggregation(name, component.position, scope, None, type=INT, span=node.span)
        operand = replace(self, ranging=scope).value(argument)
        return Aggregation(
            name, component.position, scope, operand, type=self.aggregate_type(name, operand), span=node.span
        )

    def _scope(self, reference: Reference, variable: str) -> Scope:
        kind = None if reference.index is None else reference.index.kind
        if kind is IndexKind.ALL:
            return Scope.ALL
        if kind is not IndexKind.BEFORE:
            hint = f"write {variable}[] for all of them, {variable}[..i-1] for those before this one"
            raise self.source.mistake(
                "an aggregate must range over all events or those before this one", reference.span, hint
            )
        if self.place is not Place.WHERE:
            raise self.source.mistake(
                f"{variable}[..i-1] cannot be used in {self.place.value}",
                reference.span,
                f"{variable}[] means all of its events",
            )
        return Scope.BEFORE

    def aggregate_type(self, name: str, operand: Bound) -> Type:
        """The type of an aggregate's value."""
        kind = operand.type
        if name == "count":
            return INT
        if name in ("first", "last"):
            return kind
        if name in ("min", "max", "count_distinct"):
            self.typing.check_comparable(kind, operand.span)
            if name == "count_distinct":
                return INT
            if kind == BOOL:
                raise self.source.mistake("booleans have no order", operand.span)
            return kind
        is_added = kind.kind in NUMBERS or (kind.kind is Kind.DURATION and name == "sum")
        if not is_added and kind.kind not in (Kind.UNKNOWN, Kind.NULL):
            hint = IN_SECONDS if kind.kind is Kind.DURATION else None
            raise self.source.mistake(f"cannot add up {described(kind)} in {name}(…)", operand.span, hint)
        self.typing.check_digits([operand])
        if name in ("avg", "stddev"):
            return FLOAT
        return Type(Kind.DECIMAL, precision=DECIMAL_DIGITS_MAX, scale=kind.scale) if kind.kind is Kind.DECIMAL else kind


def _asks_a_list(arguments: Sequence[Bound]) -> bool:
    """Whether contains(…) tests the elements of a list and not parts of a text."""
    listed, value = (argument.type.kind for argument in arguments)
    return listed is Kind.LIST or (listed is Kind.UNKNOWN and value not in (Kind.STRING, Kind.UNKNOWN, Kind.NULL))


def _no_regular_expression(text: str) -> str | None:
    """Why a text is not a regular expression of RE2; None if it is one."""
    try:
        pc.match_substring_regex(pa.array([], pa.large_string()), pattern=text)
        pc.match_substring_regex(pa.array([""], pa.large_string()), pattern=text)
    except pa.ArrowInvalid as error:
        return str(error).partition(":")[2].strip() or str(error)
    return None


def _no_network(text: str) -> str | None:
    """Why a text is not a network; None if it is one."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return "a network is an address and a number of bits, such as '10.0.0.0/8' or '2001:db8::/32'"
    return None


_CHECKED_TEXTS: dict[Accepts, Callable[[str], str | None]] = {
    Accepts.LIKE_PATTERN: lambda text: None,
    Accepts.REGULAR_EXPRESSION: _no_regular_expression,
    Accepts.NETWORK: _no_network,
}


def readable_name(node: syntax.Expr) -> str | None:
    """A column name for an expression without AS; None if none can be made.

    >>> readable_name(syntax.Binary("-", Reference(("c", "time")), Reference(("a", "time"))))
    'c_time_minus_a_time'
    """
    words = {"+": "plus", "-": "minus", "*": "times", "/": "over", "%": "modulo"}
    match node:
        case Reference(names=names):
            name: str | None = "_".join(names)
        case syntax.Literal(value=bool() | int() | Decimal() | str()):
            name = "".join(c for c in str(node.value).lower().replace(" ", "_") if c.isalnum() or c == "_")
        case syntax.Call(arguments=arguments):
            known = [readable_name(argument) for argument in arguments]
            name = "_".join([node.function, *(part for part in known if part)]) if all(known) else None
        case syntax.Binary(operator=operator) if operator in words:
            left, right = readable_name(node.left), readable_name(node.right)
            name = f"{left}_{words[operator]}_{right}" if left and right else None
        case _:
            name = None
    return name if name and len(name) <= 60 else None


_METHOD_OF_NODE = {
    syntax.Literal: "_literal",
    syntax.Percent: "_percent",
    syntax.Temporal: "_temporal",
    syntax.Duration: "_duration",
    syntax.Parameter: "_parameter",
    syntax.Reference: "_reference",
    syntax.Call: "_call",
    syntax.Unary: "_unary",
    syntax.Binary: "_binary",
    syntax.Logical: "_logical",
    syntax.In: "_in",
    syntax.Between: "_between",
    syntax.Like: "_like",
    syntax.IsNull: "_is_null",
    syntax.Presence: "_presence",
    syntax.AnyElement: "_any_element",
    syntax.Case: "_case",
    syntax.Equivalence: "_equivalence",
}

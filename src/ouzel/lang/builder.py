"""From the grammar's rules to the syntax tree. Each rule has one method, which gets the rule's children and all its
tokens.

The grammar accepts some wrong texts, so that the builder can refuse them with a clear message. Errors have positions
but no text; the parser adds the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from lark import Transformer

from ouzel.errors import QueryError
from ouzel.lang import syntax
from ouzel.lang.lexer import Token, shorten
from ouzel.lang.syntax import (
    Component,
    Expr,
    Group,
    GroupKind,
    Index,
    IndexKind,
    Item,
    Literal,
    Logical,
    Node,
    Reference,
    Span,
)
from ouzel.lang.vocabulary import AGGREGATE_WORDS

NodeT = TypeVar("NodeT", bound=Node)

INDEX_HINT = "a Kleene variable is indexed as v[1], v[i], v[i-1], v[v.LEN], v[..i-1] or v[]"


class Conjuncts(tuple[Expr, ...]):
    """Conjuncts of `a = b = c` or `[a, b]`. An AND around them takes them as its own operands."""


class Clause(NamedTuple):
    """The fields of the query that a clause sets."""

    keyword: str
    keyword_span: Span
    span: Span
    fields: dict[str, Any]


class Types(NamedTuple):
    """The types of a component: one, or those of ANY."""

    names: tuple[syntax.TypeName, ...]
    any_of: bool
    span: Span


class Quantifier(NamedTuple):
    """How many events a component has. `kleene`: its variable is a list."""

    least: int
    most: int | None
    kleene: bool
    written: str
    span: Span


ONCE = Quantifier(1, 1, False, "", syntax.NOWHERE)
Part = Component | Group


class Builder(Transformer[Token, Any]):
    # ── The query ──────────────────────────────────────────────────────────────────────────────────

    def query(self, children: list[Any]) -> syntax.Query:
        fields: dict[str, Any] = {}
        if isinstance(children[0], Token):
            fields["name"] = children[0].value
        clauses: list[Clause] = [child for child in children if isinstance(child, Clause)]
        for clause in clauses:
            if clause.fields.keys() & fields.keys():
                raise _refusal(f"{clause.keyword} is written twice", clause.keyword_span)
            fields.update(clause.fields)
        if "pattern" not in fields:
            raise _refusal("there is no PATTERN clause", _span(children), "write PATTERN SEQ(Type variable, …)")
        return syntax.Query(**fields, span=_span(children))

    def expression(self, children: list[Any]) -> Expr:
        (expression,) = _nodes(children, Expr)
        return expression

    # ── Patterns ───────────────────────────────────────────────────────────────────────────────────

    def sequence_pattern(self, children: list[Any]) -> Any:
        parts: tuple[Part, ...] = next(child for child in children if isinstance(child, tuple))
        return self._pattern(children, parts, bare=False)

    def bare_pattern(self, children: list[Any]) -> Any:
        return self._pattern(children, (children[1],), bare=True)

    def _pattern(self, children: list[Any], parts: tuple[Part, ...], bare: bool) -> Any:
        notation = syntax.Notation(children[0].type)
        if notation is syntax.Notation.SEQUENCE:
            parts = tuple(_as_variable(part) for part in parts)
        return _clause(children, pattern=syntax.Pattern(notation, parts, bare, span=_span(children)))

    def components(self, children: list[Any]) -> tuple[Part, ...]:
        return tuple(child for child in children if isinstance(child, Component | Group))

    def sequence(self, children: list[Any]) -> Group:
        return _group(GroupKind.SEQ, children[2], children)

    def choice(self, children: list[Any]) -> Group:
        kind = GroupKind(children[0].type)
        if len(children[2]) < 2:
            raise _refusal(f"{kind.value} needs two parts or more", _span(children))
        return _group(kind, children[2], children)

    def alternatives(self, children: list[Any]) -> Group:
        return _group(GroupKind.OR, self.components(children), children)

    def negative(self, children: list[Any]) -> Component:
        span = _span(children)
        inner: tuple[Part, ...] = children[2] if len(children) == 4 else (children[1],)
        if len(inner) != 1 or isinstance(inner[0], Group):
            raise _refusal("a negation must hold one component: it forbids single events, not sequences of them", span)
        component = inner[0]
        if component.negated:
            raise _refusal("a negation cannot be negated", span)
        if component.kleene or component.least == 0:
            written = "+" if component.kleene else "?"
            raise _refusal(f"{written} cannot be under a negation, which forbids single events", span)
        return replace(component, negated=True, span=span)

    def element(self, children: list[Any]) -> Component:
        types: Types = children[0]
        quantifier = next((child for child in children if isinstance(child, Quantifier)), ONCE)
        tokens = [child for child in children[1:] if isinstance(child, Token)]
        name = next((token for token in tokens if token.type == "NAME"), None)
        brackets = any(token.type == "INDEX" for token in tokens)
        kleene, written = quantifier.kleene, quantifier.written
        if name is not None and kleene != brackets:
            hint = f"write {name.value}[]" if kleene else f"write + after the type, or {name.value} alone"
            what = f"with {written} must have brackets" if kleene else f"{written or 'without +'} cannot have brackets"
            what = what if kleene or not written else f"with {what}"
            raise _refusal(f"a variable {what}", Span(name.start, children[-1].end), hint)
        return Component(
            types.names,
            name.value if name else None,
            kleene=kleene,
            any_of=types.any_of,
            least=quantifier.least,
            most=quantifier.most if kleene else None,
            span=_span(children),
            variable_span=Span(name.start, name.end) if name else syntax.NOWHERE,
        )

    def types(self, children: list[Token]) -> Types:
        return Types(_type_names(children), False, _span(children))

    def any_types(self, children: list[Token]) -> Types:
        return Types(_type_names(children), True, _span(children))

    def any_type(self, children: list[Token]) -> Types:
        return Types((), True, _span(children))

    def quantifier(self, children: list[Token]) -> Any:
        span = _span(children)
        kind = children[0].type
        if kind != "LBRACE":
            least, most = {"QUESTION": (0, 1), "PLUS": (1, None), "STAR": (0, None)}[kind]
            return Quantifier(least, most, kind != "QUESTION", children[0].value, span)
        numbers = [token.value for token in children if token.type == "NUMBER"]
        if not all(isinstance(number, int) for number in numbers):
            raise _refusal("a number of events must be a whole number", span, "write T{2,3} v[]")
        commas = [place for place, token in enumerate(children) if token.type == "COMMA"]
        if not commas:
            least, most = numbers[0], numbers[0]
        elif len(numbers) == 2:
            least, most = numbers
        else:
            least, most = (0, numbers[0]) if commas[0] == 1 else (numbers[0], None)
        if most is not None and (most == 0 or least > most):
            raise _refusal(
                "{" + f"{least},{most}" + "} holds no number of events" if most else "a component needs an event",
                span,
                "write {m,n} with m <= n" if most else "leave the component out, or negate it: !(T v)",
            )
        return Quantifier(least, most, True, "{…}", span)

    # ── Clauses ────────────────────────────────────────────────────────────────────────────────────

    def sources(self, children: list[Any]) -> Clause:
        return _clause(children, sources=tuple(_values(children, "NAME")))

    def where(self, children: list[Any]) -> Any:
        condition = children[1]
        if isinstance(condition, syntax.Call) and condition.function in _STRATEGIES:
            raise _refusal("a strategy needs a body", condition.span, f"write {condition.function}(…) {{ … }}")
        return _clause(children, where=condition)

    def where_strategy(self, children: list[Any]) -> Any:
        selection = _selection(children[1])
        if isinstance(children[3], Expr):
            return _clause(children, selection=selection, where=children[3])
        return _clause(children, selection=selection, where=None)

    def where_contiguity(self, children: list[Any]) -> Any:
        body = next(_nodes(children, Expr), None)
        closing = next(n for n, child in enumerate(children) if isinstance(child, Token) and child.type == "RPAR")
        span = _span(children[1 : closing + 1])
        name = _function(children[1])
        if name != syntax.Strategy.CONTIGUITY.value:
            raise _refusal(f"{shorten(name)} cannot have a rule for each step", span, CONTIGUITY_HINT)
        steps = tuple(_nodes(children, syntax.Step))
        selection = syntax.Selection(syntax.Strategy.CONTIGUITY, (), steps, span=span)
        return _clause(children, selection=selection, where=body)

    def step(self, children: list[Any]) -> syntax.Step:
        variable, *index, _, rule = children
        span = _span(children)
        if rule.value.lower() not in _CONTIGUITIES:
            raise _refusal(f"there is no contiguity {shorten(rule.value)}", _span([rule]), CONTIGUITY_HINT)
        written = (index[0].kind, index[0].offset) if index else (IndexKind.NUMBER, 1)
        repeats = written == (IndexKind.ITERATION, 0)
        if not repeats and written != (IndexKind.NUMBER, 1):
            name = variable.value
            hint = f"write {name}: for its first event, and {name}[i]: for each further one"
            raise _refusal("a step cannot have this index", _span(index), hint)
        return syntax.Step(variable.value, _CONTIGUITIES[rule.value.lower()], repeats, span=span)

    def group_by(self, children: list[Any]) -> Clause:
        return _clause(children, keyword="GROUP BY", group_by=tuple(_nodes(children, Item)))

    def aggregates(self, children: list[Any]) -> Clause:
        return _clause(children, aggregates=tuple(_nodes(children, syntax.Aggregate)))

    def aggregate(self, children: list[Any]) -> syntax.Aggregate:
        span = _span(children)
        function = _function(children[0])
        argument = next(_nodes(children, Expr), None)
        # The binder reports a function that is not an aggregate.
        if argument is None and function in AGGREGATE_WORDS - {"count"}:
            raise _refusal(f"{function.upper()} needs an attribute", span, f"write {function.upper()}(v.attribute)")
        names = [child for child in children[1:] if isinstance(child, Token) and child.type == "NAME"]
        as_decimal = bool(names) and not names[0].quoted and names[0].value.upper() == "DECIMAL"
        if as_decimal and function != "count":
            raise _refusal("only COUNT can be AS DECIMAL", span, 'a column of that name is written AS "DECIMAL"')
        if len(names) - as_decimal > 1:
            raise _refusal("an aggregate cannot have two names", span)
        alias = names[-1].value if len(names) > as_decimal else None
        return syntax.Aggregate(function, argument, alias, as_decimal, span=span)

    def having(self, children: list[Any]) -> Clause:
        return _clause(children, having=children[1])

    def within(self, children: list[Any]) -> Any:
        in_events = children[-1].type == "EVENTS"
        extent = _extent(children[1])
        whole = isinstance(extent, syntax.Parameter) or (isinstance(extent, Literal) and isinstance(extent.value, int))
        if in_events and not whole:
            raise _refusal("a window in events must be a whole number", extent.span, "write WITHIN 50 EVENTS")
        return _clause(children, within=syntax.Within(extent, in_events, span=_span(children)))

    def threshold(self, children: list[Any]) -> Any:
        on_probability = len(children) > 2
        if on_probability and children[3].value.lower() != "probability":
            raise _refusal(
                f"a threshold cannot be on {shorten(children[3].value)}", _span(children[3:]), "write ON probability"
            )
        return _clause(children, threshold=syntax.Threshold(_extent(children[1]), on_probability, span=_span(children)))

    def output(self, children: list[Token]) -> Any:
        words = children[1:]
        written = " ".join(word.value.upper() for word in words[:3] if not word.quoted)
        variable = None
        if written in _SKIPS and len(words) == 4:
            variable = words[3].value
        elif written in _SKIPS and len(words) == 3:
            raise _refusal(f"OUTPUT {written} needs a variable", _span(children), f"write OUTPUT {written} v")
        elif written not in _FORMS or len(words) != 1:
            raise _refusal(f"there is no OUTPUT form {shorten(written)}", _span(words), _forms_hint(written))
        return _clause(children, output=syntax.Output(syntax.OutputForm(written), variable, span=_span(children)))

    def emit(self, children: list[Token]) -> Clause:
        return _clause(children, keyword="EMIT ON CHANGE", emit_on_change=True)

    def returns(self, children: list[Any]) -> Clause:
        return _clause(children, returns=syntax.Return(None, tuple(_nodes(children, Item)), span=_span(children)))

    def returns_event(self, children: list[Any]) -> Any:
        items = tuple(_nodes(children, Item))
        return _clause(children, returns=syntax.Return(children[1].value, items, span=_span(children)))

    def into(self, children: list[Token]) -> Clause:
        return _clause(children, into=children[1].value)

    def item(self, children: list[Any]) -> Item:
        return Item(children[0], children[2].value if len(children) > 1 else None, span=_span(children))

    # ── Logic and comparison ───────────────────────────────────────────────────────────────────────

    def disjunction(self, children: list[Any]) -> Expr:
        operands = tuple(_nodes(children, Expr))
        return operands[0] if len(operands) == 1 else Logical("OR", operands, span=_span(children))

    def conjunction(self, children: list[Any]) -> Expr:
        if len(children) == 1:
            return _joined(children[0])
        operands: list[Expr] = []
        for child in children[::2]:
            operands.extend(child if isinstance(child, Conjuncts) else (child,))
        return Logical("AND", tuple(operands), span=_span(operands))

    def negation(self, children: list[Any]) -> Expr:
        operand = _joined(children[1])
        return syntax.Unary("NOT", operand, span=_span([children[0], operand]))

    def comparison(self, children: list[Any]) -> Any:
        operators = children[1::2]
        if len(operators) > 1 and any(operator.type != "EQUAL" for operator in operators):
            raise _refusal("only = can be chained", _span(children), "write a < b AND b < c")
        pairs = [
            syntax.Binary(operator.value, left, right, span=_span([left, right]))
            for left, operator, right in zip(children[::2], operators, children[2::2], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else Conjuncts(pairs)

    def membership(self, children: list[Any]) -> Expr:
        operand, *items = _nodes(children, Expr)
        return syntax.In(operand, tuple(items), _negated(children), span=_span(children))

    def range(self, children: list[Any]) -> Expr:
        operand, low, high = _nodes(children, Expr)
        return syntax.Between(operand, low, high, _negated(children), span=_span(children))

    def like(self, children: list[Any]) -> Expr:
        operand, pattern = _nodes(children, Expr)
        escape = next(_values(children, "STRING"), None)
        if escape is not None and len(escape) != 1:
            raise _refusal("ESCAPE takes one character", _span(children[-1:]), r"write ESCAPE '\'")
        return syntax.Like(operand, pattern, _negated(children), escape, span=_span(children))

    def null_test(self, children: list[Any]) -> Expr:
        return syntax.IsNull(children[0], _negated(children), span=_span(children))

    def presence(self, children: list[Any]) -> Expr:
        absent = (children[-1].type == "ABSENT") is not _negated(children)
        match children[0]:
            case Reference(names=(variable,), index=None | Index(kind=IndexKind.ALL), default=None):
                return syntax.Presence(variable, absent, span=_span(children))
        word = children[-1].type
        hint = f"write v IS {word} for an event, a.x IS NULL for a value"
        raise _refusal(f"IS {word} asks about a variable", _span(children), hint)

    def equivalence(self, children: list[Any]) -> Any:
        tests = list(_nodes(children, syntax.Equivalence))
        return replace(tests[0], span=_span(children)) if len(tests) == 1 else Conjuncts(tests)

    def test(self, children: list[Any]) -> Expr:
        value = next(_nodes(children, Expr), None)
        return syntax.Equivalence(tuple(_values(children, "NAME")), value, span=_span(children))

    # ── Values ─────────────────────────────────────────────────────────────────────────────────────

    def arithmetic(self, children: list[Any]) -> Expr:
        left, operator, right = children
        return syntax.Binary(operator.value, left, right, span=_span(children))

    def minus(self, children: list[Any]) -> Expr:
        return syntax.Unary("-", children[1], span=_span(children))

    def parenthesised(self, children: list[Any]) -> Expr:
        inner: Expr = children[1]
        return replace(inner, span=_span(children))

    def number(self, children: list[Token]) -> Expr:
        return Literal(children[0].value, span=_span(children))

    string = number

    def constant(self, children: list[Token]) -> Expr:
        value = {"TRUE": True, "FALSE": False, "NULL": None}[children[0].type]
        return Literal(value, span=_span(children))

    def percent(self, children: list[Token]) -> Expr:
        return syntax.Percent(children[0].value, span=_span(children))

    def duration(self, children: list[Token]) -> Expr:
        expression: Expr = children[0].value
        return expression

    temporal = duration

    def parameter(self, children: list[Token]) -> Expr:
        return syntax.Parameter(children[0].value, span=_span(children))

    def call(self, children: list[Any]) -> Expr:
        name = children[0]
        if name.quoted:
            raise _refusal("the name of a function cannot be quoted", _span(children[:1]))
        if _function(name) != "count" and any(_values(children, "STAR")):
            raise _refusal("* can be used only in COUNT(*)", _span(children[2:3]))
        return syntax.Call(_function(name), tuple(_nodes(children, Expr)), span=_span(children))

    def case(self, children: list[Any]) -> Expr:
        operand = children[1] if isinstance(children[1], Expr) else None
        otherwise = children[-2] if isinstance(children[-2], Expr) else None
        return syntax.Case(operand, tuple(_nodes(children, syntax.When)), otherwise, span=_span(children))

    def when(self, children: list[Any]) -> syntax.When:
        return syntax.When(children[1], children[3], span=_span(children))

    # ── References ─────────────────────────────────────────────────────────────────────────────────

    def reference(self, children: list[Any]) -> Expr:
        index = next(_nodes(children, Index), None)
        default = next(_nodes(children, Expr), None)
        return Reference(tuple(_values(children, "NAME")), index, default, span=_span(children))

    def index_all(self, children: list[Any]) -> Index:
        return Index(IndexKind.ALL, span=_span(children))

    def index_number(self, children: list[Any]) -> Index:
        number = children[1].value
        if not isinstance(number, int):
            raise _refusal("an index must be a whole number", _span(children), INDEX_HINT)
        return Index(IndexKind.NUMBER, number, span=_span(children))

    def index_name(self, children: list[Any]) -> Index:
        name = children[1]
        if not name.quoted and name.value.upper() == "LEN":
            return Index(IndexKind.LAST, span=_span(children))
        return Index(IndexKind.ITERATION, 0, span=self._iteration(children, name))

    def index_offset(self, children: list[Any]) -> Index:
        _, name, operator, number, _ = children
        if not isinstance(number.value, int):
            raise _refusal("an index must be a whole number", _span(children), INDEX_HINT)
        offset = number.value if operator.type == "PLUS" else -number.value
        return Index(IndexKind.ITERATION, offset, span=self._iteration(children, name))

    def index_before(self, children: list[Any]) -> Index:
        span = self._iteration(children, children[2])
        if children[4].value != 1:
            raise _refusal("a range of a Kleene variable must end at i-1", span, INDEX_HINT)
        return Index(IndexKind.BEFORE, -1, span=span)

    def index_last(self, children: list[Any]) -> Index:
        _, variable, _, length, _ = children
        if length.quoted or length.value.upper() != "LEN":
            raise _refusal("this is not an index", _span(children), INDEX_HINT)
        return Index(IndexKind.LAST, of=variable.value, span=_span(children))

    @staticmethod
    def _iteration(children: list[Any], name: Token) -> Span:
        if name.quoted or name.value != "i":
            raise _refusal(f"{shorten(name.value)} is not an index", _span(children), INDEX_HINT)
        return _span(children)


_STRATEGIES = {strategy.value: strategy for strategy in syntax.Strategy}
_CONTIGUITIES = {contiguity.value: contiguity for contiguity in syntax.Contiguity}
CONTIGUITY_HINT = "write contiguity(b: next, b[i]: strict, c: any) { … }; a step is strict, partition, next or any"
_FORMS = {form.value for form in syntax.OutputForm} - {"SKIP TO FIRST", "SKIP TO LAST"}
_SKIPS = {"SKIP TO FIRST", "SKIP TO LAST"}


def _refusal(message: str, span: Span, hint: str | None = None) -> QueryError:
    return QueryError(message, start=span.start, end=span.end, hint=hint)


def _span(children: Sequence[Any]) -> Span:
    first, last = children[0], children[-1]
    return Span(
        first.start if isinstance(first, Token) else first.span.start,
        last.end if isinstance(last, Token) else last.span.end,
    )


def _clause(children: list[Any], *, keyword: str | None = None, **fields: Any) -> Clause:
    return Clause(keyword or children[0].value.upper(), _span(children[:1]), _span(children), fields)


def _nodes(children: Sequence[Any], kind: type[NodeT]) -> Iterator[NodeT]:
    return (child for child in children if isinstance(child, kind))


def _values(children: Sequence[Any], kind: str) -> Iterator[str]:
    return (child.value for child in children if isinstance(child, Token) and child.type == kind)


def _function(name: Token) -> str:
    # Only if lower case can be undone: some letters of other alphabets become several letters.
    written: str = name.value
    return written.lower() if written.isascii() else written


def _negated(children: Sequence[Any]) -> bool:
    return any(isinstance(child, Token) and child.type == "NOT" for child in children)


def _joined(child: Expr | Conjuncts) -> Expr:
    if isinstance(child, Conjuncts):
        return Logical("AND", tuple(child), span=_span(child))
    return child


def _type_names(tokens: list[Token]) -> tuple[syntax.TypeName, ...]:
    return tuple(syntax.TypeName(token.value, span=_span([token])) for token in tokens if token.type == "NAME")


def _group(kind: GroupKind, parts: tuple[Part, ...], children: list[Any]) -> Group:
    quantifier = next((child for child in children if isinstance(child, Quantifier)), ONCE)
    for part in parts:
        if kind is not GroupKind.SEQ and part.negated:
            raise _refusal(f"a part of {kind.value} cannot be negated", part.span, "a negation is between steps of SEQ")
    return Group(kind, parts, quantifier.least, quantifier.most, span=_span(children))


def _as_variable(component: Part) -> Part:
    """After SEQUENCE a name without a type is a variable of any type."""
    if isinstance(component, Group):
        return replace(component, parts=tuple(_as_variable(part) for part in component.parts))
    if component.variable is not None or component.any_of:
        return component
    if component.kleene:
        raise _refusal("+ needs a type after SEQUENCE", component.span, "write Type+ v[]")
    (name,) = component.types
    return replace(component, types=(), variable=name.name, variable_span=name.span)


def _extent(token: Token) -> Expr:
    if isinstance(token.value, Expr):
        return token.value
    kinds = {"NUMBER": Literal, "PERCENT": syntax.Percent, "PARAMETER": syntax.Parameter}
    expression: Expr = kinds[token.type](token.value, span=_span([token]))
    return expression


def _selection(called: Expr) -> syntax.Selection:
    """The text before `{`: the name of a strategy, with or without its variables."""
    if isinstance(called, syntax.Call):
        name, arguments = called.function, called.arguments
    elif isinstance(called, Reference) and len(called.names) == 1 and called.index is None:
        name, arguments = called.names[0].lower(), ()
    else:
        raise _refusal("only a strategy can come before {", called.span, "write skip_till_next_match(a, b) { … }")
    if name not in _STRATEGIES:
        near = get_close_matches(name, _STRATEGIES, 1)
        hint = f"did you mean {near[0]}?" if near else f"the strategies are {', '.join(_STRATEGIES)}"
        raise _refusal(f"there is no strategy {shorten(name)}", called.span, hint)
    if _STRATEGIES[name] is syntax.Strategy.CONTIGUITY:
        raise _refusal("contiguity must have a rule for each step that it names", called.span, CONTIGUITY_HINT)
    variables = []
    for argument in arguments:
        match argument:
            case Reference(names=(variable,), index=None | Index(kind=IndexKind.ALL)):
                variables.append(variable)
            case _:
                raise _refusal(
                    "a strategy must list the pattern's variables", argument.span, f"write {name}(a, b[], c)"
                )
    return syntax.Selection(_STRATEGIES[name], tuple(variables), span=called.span)


def _forms_hint(written: str) -> str:
    near = get_close_matches(written, sorted(_FORMS | _SKIPS), 1)
    return f"did you mean {near[0]}?" if near else f"the forms are {', '.join([*sorted(_FORMS), *sorted(_SKIPS)])}"

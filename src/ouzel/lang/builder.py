"""Builds the syntax tree from the rules of the grammar. Each rule has one method, which gets the rule's children and
all its tokens.

The grammar accepts some wrong texts, so that the builder can refuse them with a clear message. The errors raised here
have a position but no text, which the parser adds.
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
    EVENTS_MAX,
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
from ouzel.lang.vocabulary import AGGREGATE_WORDS, LIKE_WORDS

NodeT = TypeVar("NodeT", bound=Node)

INDEX_HINT = "a Kleene variable is indexed as v[1], v[i], v[i-1], v[LEN], v[..i-1] or v[]"


class Conjuncts(tuple[Expr, ...]):
    """The conjuncts of `a = b = c` or `[a, b]`. An AND around them makes them its own operands."""


class Clause(NamedTuple):
    """The fields of a query that one clause sets."""

    keyword: str
    keyword_span: Span
    span: Span
    fields: dict[str, Any]


class Types(NamedTuple):
    """The types of a component: one type, or those of ANY."""

    names: tuple[syntax.TypeName, ...]
    any_of: bool
    span: Span


class Quantifier(NamedTuple):
    """How many events a component has. If `kleene`, its variable is a list."""

    least: int
    most: int | None
    kleene: bool
    written: str
    span: Span


class Forbidden(NamedTuple):
    """The components after WITHOUT, such as `WITHOUT T v`."""

    component: Component
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
                raise refusal(f"{clause.keyword} is written twice", clause.keyword_span)
            fields.update(clause.fields)
        if "pattern" not in fields:
            raise refusal("there is no PATTERN clause", span_of(children), "write PATTERN SEQ(Type variable, …)")
        return syntax.Query(**fields, span=span_of(children))

    def expression(self, children: list[Any]) -> Expr:
        (expression,) = nodes_of(children, Expr)
        return expression

    # ── Patterns ───────────────────────────────────────────────────────────────────────────────────

    def sequence_pattern(self, children: list[Any]) -> Any:
        parts: tuple[Part, ...] = next(child for child in children if isinstance(child, tuple))
        return self._pattern(children, parts, bare=False)

    def bare_pattern(self, children: list[Any]) -> Any:
        part = _with_forbidden(children[1], _forbidden_in(children), span_of(children[1:]))
        return self._pattern(children, (part,), bare=True)

    def _pattern(self, children: list[Any], parts: tuple[Part, ...], bare: bool) -> Any:
        notation = syntax.Notation(children[0].type)
        without = () if bare else _forbidden_in(children)
        if notation is syntax.Notation.SEQUENCE:
            parts = tuple(_as_variable(part) for part in parts)
            without = tuple(_any_type(leaf) for leaf in without)
        pattern = syntax.Pattern(notation, parts, bare, without, span=span_of(children))
        return clause_of(children, pattern=pattern)

    def guarded(self, children: list[Any]) -> Part:
        return _with_forbidden(children[0], _forbidden_in(children), span_of(children))

    def without(self, children: list[Any]) -> Forbidden:
        span = span_of(children)
        (component,) = nodes_of(children, Component)
        if component.kleene or component.least == 0:
            hint = "leave the quantifier out: WITHOUT forbids every such event"
            raise refusal("WITHOUT needs a component of one event", span, hint)
        return Forbidden(replace(component, negated=True, span=span), span)

    def components(self, children: list[Any]) -> tuple[Part, ...]:
        return tuple(child for child in children if isinstance(child, Component | Group))

    def sequence(self, children: list[Any]) -> Group:
        return _group(GroupKind.SEQ, children[2], children)

    def choice(self, children: list[Any]) -> Group:
        kind = GroupKind(children[0].type)
        if len(children[2]) < 2:
            raise refusal(f"{kind.value} needs two parts or more", span_of(children))
        return _group(kind, children[2], children)

    def alternatives(self, children: list[Any]) -> Group:
        return _group(GroupKind.OR, self.components(children), children)

    def negative(self, children: list[Any]) -> Part:
        span = span_of(children)
        inner: tuple[Part, ...] = children[2] if len(children) == 4 else (children[1],)
        first = inner[0]
        if len(inner) == 1 and isinstance(first, Group) and first == Group(GroupKind.SEQ, first.parts):
            inner = first.parts
            first = inner[0]
        for part in inner:
            if part.negated:
                raise refusal("a negation cannot be negated", span)
            if isinstance(part, Group) or part.without:
                hint = "find other patterns by a query of their own with INTO, read it with FROM and negate its events"
                raise refusal("a negated sequence must be made of components", part.span, hint)
            if part.least == 0:
                hint = "leave it out: a negation forbids the sequence without it, too"
                raise refusal("a component under a negation cannot be optional", part.span, hint)
        if len(inner) == 1 and isinstance(first, Component) and not first.kleene:
            return replace(first, negated=True, span=span)
        return Group(GroupKind.SEQ, inner, negated=True, span=span)

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
            raise refusal(f"a variable {what}", Span(name.start, children[-1].end), hint)
        return Component(
            types.names,
            name.value if name else None,
            kleene=kleene,
            any_of=types.any_of,
            least=quantifier.least,
            most=quantifier.most if kleene else None,
            span=span_of(children),
            variable_span=Span(name.start, name.end) if name else syntax.NOWHERE,
        )

    def types(self, children: list[Token]) -> Types:
        return Types(_type_names(children), False, span_of(children))

    def any_types(self, children: list[Token]) -> Types:
        return Types(_type_names(children), True, span_of(children))

    def any_type(self, children: list[Token]) -> Types:
        return Types((), True, span_of(children))

    def quantifier(self, children: list[Token]) -> Any:
        span = span_of(children)
        kind = children[0].type
        if kind != "LBRACE":
            least, most = {"QUESTION": (0, 1), "PLUS": (1, None), "STAR": (0, None)}[kind]
            return Quantifier(least, most, kind != "QUESTION", children[0].value, span)
        numbers = [token.value for token in children if token.type == "NUMBER"]
        if not all(isinstance(number, int) for number in numbers):
            raise refusal("a number of events must be a whole number", span, "write T{2,3} v[]")
        if max(numbers) > EVENTS_MAX:
            raise refusal(f"a number of events may be at most {EVENTS_MAX:,}", span)
        commas = [place for place, token in enumerate(children) if token.type == "COMMA"]
        if not commas:
            least, most = numbers[0], numbers[0]
        elif len(numbers) == 2:
            least, most = numbers
        else:
            least, most = (0, numbers[0]) if commas[0] == 1 else (numbers[0], None)
        if most is not None and (most == 0 or least > most):
            raise refusal(
                "{" + f"{least},{most}" + "} holds no number of events" if most else "a component needs an event",
                span,
                "write {m,n} with m <= n" if most else "leave the component out, or negate it: !(T v)",
            )
        return Quantifier(least, most, True, "{…}", span)

    # ── Clauses ────────────────────────────────────────────────────────────────────────────────────

    def sources(self, children: list[Any]) -> Clause:
        return clause_of(children, sources=tuple(values_of(children, "NAME")))

    def where(self, children: list[Any]) -> Any:
        condition = children[1]
        if isinstance(condition, syntax.Call) and condition.function in _STRATEGIES:
            raise refusal("a strategy needs a body", condition.span, f"write {condition.function}(…) {{ … }}")
        return clause_of(children, where=condition)

    def where_strategy(self, children: list[Any]) -> Any:
        selection = _selection(children[1])
        if isinstance(children[3], Expr):
            return clause_of(children, selection=selection, where=children[3])
        return clause_of(children, selection=selection, where=None)

    def where_contiguity(self, children: list[Any]) -> Any:
        body = next(nodes_of(children, Expr), None)
        closing = next(n for n, child in enumerate(children) if isinstance(child, Token) and child.type == "RPAR")
        span = span_of(children[1 : closing + 1])
        name = _function(children[1])
        if name != syntax.Strategy.CONTIGUITY.value:
            raise refusal(f"{shorten(name)} cannot have a rule for each step", span, CONTIGUITY_HINT)
        steps = tuple(nodes_of(children, syntax.Step))
        selection = syntax.Selection(syntax.Strategy.CONTIGUITY, (), steps, span=span)
        return clause_of(children, selection=selection, where=body)

    def step(self, children: list[Any]) -> syntax.Step:
        variable, *index, _, rule = children
        span = span_of(children)
        if rule.value.lower() not in _CONTIGUITIES:
            raise refusal(f"there is no contiguity {shorten(rule.value)}", span_of([rule]), CONTIGUITY_HINT)
        written = (index[0].kind, index[0].offset) if index else (IndexKind.NUMBER, 1)
        repeats = written == (IndexKind.ITERATION, 0)
        if not repeats and written != (IndexKind.NUMBER, 1):
            name = variable.value
            hint = f"write {name}: for its first event, and {name}[i]: for each further one"
            raise refusal("a step cannot have this index", span_of(index), hint)
        return syntax.Step(variable.value, _CONTIGUITIES[rule.value.lower()], repeats, span=span)

    def group_by(self, children: list[Any]) -> Clause:
        return clause_of(children, keyword="GROUP BY", group_by=tuple(nodes_of(children, Item)))

    def aggregates(self, children: list[Any]) -> Clause:
        return clause_of(children, aggregates=tuple(nodes_of(children, syntax.Aggregate)))

    def aggregate(self, children: list[Any]) -> syntax.Aggregate:
        span = span_of(children)
        function = _function(children[0])
        argument = next(nodes_of(children, Expr), None)
        # The binder reports a function that is not an aggregate.
        if argument is None and function in AGGREGATE_WORDS - {"count"}:
            raise refusal(f"{function.upper()} needs an attribute", span, f"write {function.upper()}(v.attribute)")
        names = [child for child in children[1:] if isinstance(child, Token) and child.type == "NAME"]
        as_decimal = bool(names) and not names[0].quoted and names[0].value.upper() == "DECIMAL"
        if as_decimal and function != "count":
            raise refusal("only COUNT can be AS DECIMAL", span, 'a column of that name is written AS "DECIMAL"')
        if len(names) - as_decimal > 1:
            raise refusal("an aggregate cannot have two names", span)
        alias = names[-1].value if len(names) > as_decimal else None
        return syntax.Aggregate(function, argument, alias, as_decimal, span=span)

    def having(self, children: list[Any]) -> Clause:
        return clause_of(children, having=children[1])

    def within(self, children: list[Any]) -> Any:
        in_events = children[-1].type == "EVENTS"
        extent = extent_of(children[1])
        whole = isinstance(extent, syntax.Parameter) or (isinstance(extent, Literal) and isinstance(extent.value, int))
        if in_events and not whole:
            raise refusal("a window in events must be a whole number", extent.span, "write WITHIN 50 EVENTS")
        return clause_of(children, within=syntax.Within(extent, in_events, span=span_of(children)))

    def threshold(self, children: list[Any]) -> Any:
        on_probability = len(children) > 2
        if on_probability and children[3].value.lower() != "probability":
            raise refusal(
                f"a threshold cannot be on {shorten(children[3].value)}", span_of(children[3:]), "write ON probability"
            )
        return clause_of(
            children, threshold=syntax.Threshold(extent_of(children[1]), on_probability, span=span_of(children))
        )

    def output(self, children: list[Token]) -> Any:
        words = children[1:]
        written = " ".join(word.value.upper() for word in words[:3] if not word.quoted)
        variable = None
        if written in _SKIPS and len(words) == 4:
            variable = words[3].value
        elif written in _SKIPS and len(words) == 3:
            raise refusal(f"OUTPUT {written} needs a variable", span_of(children), f"write OUTPUT {written} v")
        elif written not in _FORMS or len(words) != 1:
            raise refusal(f"there is no OUTPUT form {shorten(written)}", span_of(words), _forms_hint(written))
        return clause_of(children, output=syntax.Output(syntax.OutputForm(written), variable, span=span_of(children)))

    def emit(self, children: list[Token]) -> Clause:
        return clause_of(children, keyword="EMIT ON CHANGE", emit_on_change=True)

    def returns(self, children: list[Any]) -> Clause:
        return clause_of(children, returns=syntax.Return(None, tuple(nodes_of(children, Item)), span=span_of(children)))

    def returns_event(self, children: list[Any]) -> Any:
        items = tuple(nodes_of(children, Item))
        return clause_of(children, returns=syntax.Return(children[1].value, items, span=span_of(children)))

    def into(self, children: list[Token]) -> Clause:
        return clause_of(children, into=children[1].value)

    def item(self, children: list[Any]) -> Item:
        return Item(children[0], children[2].value if len(children) > 1 else None, span=span_of(children))

    # ── Logic and comparison ───────────────────────────────────────────────────────────────────────

    def disjunction(self, children: list[Any]) -> Expr:
        operands = tuple(nodes_of(children, Expr))
        return operands[0] if len(operands) == 1 else Logical("OR", operands, span=span_of(children))

    def conjunction(self, children: list[Any]) -> Expr:
        if len(children) == 1:
            return _joined(children[0])
        operands: list[Expr] = []
        for child in children[::2]:
            operands.extend(child if isinstance(child, Conjuncts) else (child,))
        return Logical("AND", tuple(operands), span=span_of(operands))

    def negation(self, children: list[Any]) -> Expr:
        operand = _joined(children[1])
        return syntax.Unary("NOT", operand, span=span_of([children[0], operand]))

    def comparison(self, children: list[Any]) -> Any:
        operators = children[1::2]
        if len(operators) > 1 and any(operator.type != "EQUAL" for operator in operators):
            raise refusal("only = can be chained", span_of(children), "write a < b AND b < c")
        pairs = [
            syntax.Binary(operator.value, left, right, span=span_of([left, right]))
            for left, operator, right in zip(children[::2], operators, children[2::2], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else Conjuncts(pairs)

    def membership(self, children: list[Any]) -> Expr:
        operand, *items = nodes_of(children, Expr)
        return syntax.In(operand, tuple(items), _negated(children), span=span_of(children))

    def membership_of_list(self, children: list[Any]) -> Expr:
        operand, listed = nodes_of(children, Expr)
        call = syntax.Call("array_contains", (listed, operand), span=span_of(children))
        return _perhaps_not(call, _negated(children))

    def range(self, children: list[Any]) -> Expr:
        operand, low, high = nodes_of(children, Expr)
        return syntax.Between(operand, low, high, _negated(children), span=span_of(children))

    def like(self, children: list[Any]) -> Expr:
        operand, pattern = nodes_of(children, Expr)
        escape = next(values_of(children, "STRING"), None)
        word = next(values_of(children, "LIKE")).upper()
        if LIKE_WORDS[word] != "like":
            if escape is not None:
                hint = "write a backslash before a character that means itself"
                raise refusal(f"{word} takes no ESCAPE", span_of(children[-2:]), hint)
            call = syntax.Call(LIKE_WORDS[word], (operand, pattern), span=span_of(children))
            return _perhaps_not(call, _negated(children))
        if escape is not None and len(escape) != 1:
            raise refusal("ESCAPE takes one character", span_of(children[-1:]), r"write ESCAPE '\'")
        return syntax.Like(operand, pattern, _negated(children), escape, span=span_of(children))

    def null_test(self, children: list[Any]) -> Expr:
        return syntax.IsNull(children[0], _negated(children), span=span_of(children))

    def presence(self, children: list[Any]) -> Expr:
        absent = (children[-1].type == "ABSENT") is not _negated(children)
        match children[0]:
            case Reference(names=(variable,), index=None | Index(kind=IndexKind.ALL), default=None):
                return syntax.Presence(variable, absent, span=span_of(children))
        word = children[-1].type
        hint = f"write v IS {word} for an event, a.x IS NULL for a value"
        raise refusal(f"IS {word} asks about a variable", span_of(children), hint)

    def equivalence(self, children: list[Any]) -> Any:
        tests = list(nodes_of(children, syntax.Equivalence))
        return replace(tests[0], span=span_of(children)) if len(tests) == 1 else Conjuncts(tests)

    def test(self, children: list[Any]) -> Expr:
        value = next(nodes_of(children, Expr), None)
        return syntax.Equivalence(tuple(values_of(children, "NAME")), value, span=span_of(children))

    # ── Values ─────────────────────────────────────────────────────────────────────────────────────

    def arithmetic(self, children: list[Any]) -> Expr:
        left, operator, right = children
        return syntax.Binary(operator.value, left, right, span=span_of(children))

    def minus(self, children: list[Any]) -> Expr:
        return syntax.Unary("-", children[1], span=span_of(children))

    def parenthesised(self, children: list[Any]) -> Expr:
        inner: Expr = children[1]
        return replace(inner, span=span_of(children))

    def number(self, children: list[Token]) -> Expr:
        return Literal(children[0].value, span=span_of(children))

    string = number

    def constant(self, children: list[Token]) -> Expr:
        value = {"TRUE": True, "FALSE": False, "NULL": None}[children[0].type]
        return Literal(value, span=span_of(children))

    def percent(self, children: list[Token]) -> Expr:
        return syntax.Percent(children[0].value, span=span_of(children))

    def duration(self, children: list[Token]) -> Expr:
        expression: Expr = children[0].value
        return expression

    temporal = duration

    def parameter(self, children: list[Token]) -> Expr:
        return syntax.Parameter(children[0].value, span=span_of(children))

    def call(self, children: list[Any]) -> Expr:
        name = children[0]
        if name.quoted:
            raise refusal("the name of a function cannot be quoted", span_of(children[:1]))
        if _function(name) != "count" and any(values_of(children, "STAR")):
            raise refusal("* can be used only in COUNT(*)", span_of(children[2:3]))
        return syntax.Call(_function(name), tuple(nodes_of(children, Expr)), span=span_of(children))

    def call_distinct(self, children: list[Any]) -> Expr:
        name = _function(children[0])
        if name != "count":
            hint = "it can be used in count(DISTINCT …)"
            raise refusal(f"{name}(…) takes no DISTINCT", span_of(children[2:3]), hint)
        return syntax.Call("count_distinct", (children[3],), span=span_of(children))

    def call_of_elements(self, children: list[Any]) -> Expr:
        name, _, listed, _, variable, _, condition, _ = children
        if _function(name) not in ("any", "exists"):
            raise refusal(
                f"{_function(name)}(…) takes no condition on elements",
                span_of(children[4:6]),
                "write any(v.list, t -> t > 3), and NOT any(v.list, t -> NOT t > 3) for all",
            )
        return syntax.AnyElement(listed, variable.value, condition, span=span_of(children))

    def cast(self, children: list[Any]) -> Expr:
        name, target = children[0], children[4]
        if _function(name) != "cast":
            raise refusal(f"AS cannot be used in {_function(name)}(…)", span_of(children[3:5]), "write it outside")
        kind = _CASTS.get(target.value.lower())
        if kind is None:
            raise refusal(
                f"there is no cast to {shorten(target.value)}",
                span_of(children[4:5]),
                f"the types are {', '.join(sorted(_CASTS))}",
            )
        return syntax.Call(kind, (children[2],), span=span_of(children))

    def case(self, children: list[Any]) -> Expr:
        operand = children[1] if isinstance(children[1], Expr) else None
        otherwise = children[-2] if isinstance(children[-2], Expr) else None
        return syntax.Case(operand, tuple(nodes_of(children, syntax.When)), otherwise, span=span_of(children))

    def when(self, children: list[Any]) -> syntax.When:
        return syntax.When(children[1], children[3], span=span_of(children))

    # ── References ─────────────────────────────────────────────────────────────────────────────────

    def reference(self, children: list[Any]) -> Expr:
        index = next(nodes_of(children, Index), None)
        default = next(nodes_of(children, Expr), None)
        return Reference(tuple(values_of(children, "NAME")), index, default, span=span_of(children))

    def index_all(self, children: list[Any]) -> Index:
        return Index(IndexKind.ALL, span=span_of(children))

    def index_number(self, children: list[Any]) -> Index:
        number = children[1].value
        if not isinstance(number, int):
            raise refusal("an index must be a whole number", span_of(children), INDEX_HINT)
        return Index(IndexKind.NUMBER, number, span=span_of(children))

    def index_name(self, children: list[Any]) -> Index:
        name = children[1]
        if not name.quoted and name.value.upper() == "LEN":
            return Index(IndexKind.LAST, span=span_of(children))
        return Index(IndexKind.ITERATION, 0, span=self._iteration(children, name))

    def index_offset(self, children: list[Any]) -> Index:
        _, name, operator, number, _ = children
        if not isinstance(number.value, int):
            raise refusal("an index must be a whole number", span_of(children), INDEX_HINT)
        offset = number.value if operator.type == "PLUS" else -number.value
        return Index(IndexKind.ITERATION, offset, span=self._iteration(children, name))

    def index_before(self, children: list[Any]) -> Index:
        span = self._iteration(children, children[2])
        if children[4].value != 1:
            raise refusal("a range of a Kleene variable must end at i-1", span, INDEX_HINT)
        return Index(IndexKind.BEFORE, -1, span=span)

    def index_last(self, children: list[Any]) -> Index:
        _, variable, _, length, _ = children
        if length.quoted or length.value.upper() != "LEN":
            raise refusal("this is not an index", span_of(children), INDEX_HINT)
        return Index(IndexKind.LAST, of=variable.value, span=span_of(children))

    @staticmethod
    def _iteration(children: list[Any], name: Token) -> Span:
        if name.quoted or name.value != "i":
            raise refusal(f"{shorten(name.value)} is not an index", span_of(children), INDEX_HINT)
        return span_of(children)


_STRATEGIES = {strategy.value: strategy for strategy in syntax.Strategy}
_CONTIGUITIES = {contiguity.value: contiguity for contiguity in syntax.Contiguity}
CONTIGUITY_HINT = "write contiguity(b: next, b[i]: strict, c: any) { … }; a step is strict, partition, next or any"
# The function that a cast means.
_CASTS = {
    **dict.fromkeys(("string", "varchar", "text"), "string"), **dict.fromkeys(("bigint", "integer", "int"), "bigint"),
    "double": "double", "date": "to_date",
}  # fmt: skip
_FORMS = {form.value for form in syntax.OutputForm} - {"SKIP TO FIRST", "SKIP TO LAST"}
_SKIPS = {"SKIP TO FIRST", "SKIP TO LAST"}


def refusal(message: str, span: Span, hint: str | None = None) -> QueryError:
    return QueryError(message, start=span.start, end=span.end, hint=hint)


def span_of(children: Sequence[Any]) -> Span:
    first, last = children[0], children[-1]
    return Span(
        first.start if isinstance(first, Token) else first.span.start,
        last.end if isinstance(last, Token) else last.span.end,
    )


def clause_of(children: list[Any], *, keyword: str | None = None, **fields: Any) -> Clause:
    return Clause(keyword or children[0].value.upper(), span_of(children[:1]), span_of(children), fields)


def nodes_of(children: Sequence[Any], kind: type[NodeT]) -> Iterator[NodeT]:
    return (child for child in children if isinstance(child, kind))


def values_of(children: Sequence[Any], kind: str) -> Iterator[str]:
    return (child.value for child in children if isinstance(child, Token) and child.type == kind)


def _function(name: Token) -> str:
    # Only if lower case can be undone: some letters of other alphabets become several letters.
    written: str = name.value
    return written.lower() if written.isascii() else written


def _negated(children: Sequence[Any]) -> bool:
    return any(isinstance(child, Token) and child.type == "NOT" for child in children)


def _perhaps_not(expression: Expr, negated: bool) -> Expr:
    return syntax.Unary("NOT", expression, span=expression.span) if negated else expression


def _joined(child: Expr | Conjuncts) -> Expr:
    if isinstance(child, Conjuncts):
        return Logical("AND", tuple(child), span=span_of(child))
    return child


def _type_names(tokens: list[Token]) -> tuple[syntax.TypeName, ...]:
    return tuple(syntax.TypeName(token.value, span=span_of([token])) for token in tokens if token.type == "NAME")


def _group(kind: GroupKind, parts: tuple[Part, ...], children: list[Any]) -> Group:
    quantifier = next((child for child in children if isinstance(child, Quantifier)), ONCE)
    for part in parts:
        if kind is not GroupKind.SEQ and part.negated:
            raise refusal(f"a part of {kind.value} cannot be negated", part.span, "a negation is between steps of SEQ")
    return Group(kind, parts, quantifier.least, quantifier.most, span=span_of(children))


def _forbidden_in(children: Sequence[Any]) -> tuple[Component, ...]:
    return tuple(child.component for child in children if isinstance(child, Forbidden))


def _with_forbidden(part: Part, forbidden: tuple[Component, ...], span: Span) -> Part:
    """A part with the components that come after WITHOUT."""
    if not forbidden:
        return part
    if part.negated:
        hint = "write it after the component or the SEQ between whose events it forbids"
        raise refusal("WITHOUT cannot be after a negation, which has no events in a match", span, hint)
    if isinstance(part, Component) and not part.kleene:
        hint = "write it after a repetition such as T+ v[], or after SEQ(…)"
        raise refusal("WITHOUT cannot be after a component of one event, which has nothing inside", span, hint)
    return replace(part, without=forbidden, span=span)


def _as_variable(part: Part) -> Part:
    """A part of SEQUENCE. A name without a type is a variable of any type there."""
    part = replace(part, without=tuple(_any_type(leaf) for leaf in part.without))
    if isinstance(part, Group):
        return replace(part, parts=tuple(_as_variable(one) for one in part.parts))
    return _any_type(part)


def _any_type(component: Component) -> Component:
    if component.variable is not None or component.any_of:
        return component
    if component.kleene:
        raise refusal("+ needs a type after SEQUENCE", component.span, "write Type+ v[]")
    (name,) = component.types
    return replace(component, types=(), variable=name.name, variable_span=name.span)


def extent_of(token: Token) -> Expr:
    if isinstance(token.value, Expr):
        return token.value
    kinds = {"NUMBER": Literal, "PERCENT": syntax.Percent, "PARAMETER": syntax.Parameter}
    expression: Expr = kinds[token.type](token.value, span=span_of([token]))
    return expression


def _selection(called: Expr) -> syntax.Selection:
    """The strategy from the text before `{`: its name, perhaps with variables."""
    if isinstance(called, syntax.Call):
        name, arguments = called.function, called.arguments
    elif isinstance(called, Reference) and len(called.names) == 1 and called.index is None:
        name, arguments = called.names[0].lower(), ()
    else:
        raise refusal("only a strategy can come before {", called.span, "write skip_till_next_match(a, b) { … }")
    if name not in _STRATEGIES:
        near = get_close_matches(name, _STRATEGIES, 1)
        hint = f"did you mean {near[0]}?" if near else f"the strategies are {', '.join(_STRATEGIES)}"
        raise refusal(f"there is no strategy {shorten(name)}", called.span, hint)
    if _STRATEGIES[name] is syntax.Strategy.CONTIGUITY:
        raise refusal("contiguity must have a rule for each step that it names", called.span, CONTIGUITY_HINT)
    variables = []
    for argument in arguments:
        match argument:
            case Reference(names=(variable,), index=None | Index(kind=IndexKind.ALL)):
                variables.append(variable)
            case _:
                raise refusal("a strategy must list the pattern's variables", argument.span, f"write {name}(a, b[], c)")
    return syntax.Selection(_STRATEGIES[name], tuple(variables), span=called.span)


def _forms_hint(written: str) -> str:
    near = get_close_matches(written, sorted(_FORMS | _SKIPS), 1)
    return f"did you mean {near[0]}?" if near else f"the forms are {', '.join([*sorted(_FORMS), *sorted(_SKIPS)])}"

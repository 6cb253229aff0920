"""From syntax tree to canonical text: one clause on each line, and no unnecessary parentheses.

`parse(format_query(tree)) == tree` for every tree that the parser can return.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from ouzel.lang import syntax
from ouzel.lang.stream_lexer import KEYWORDS as STREAM_KEYWORDS
from ouzel.lang.stream_syntax import Operation, Pipeline, Source, reference_to
from ouzel.lang.syntax import Component, Expr, Group, Index, IndexKind, Notation, Query, Script, check_depth
from ouzel.lang.vocabulary import AGGREGATE_WORDS, NAME, QUOTED_WORDS, TYPE_NAME

LINE_LENGTH = 100
_INDENT = " " * 8

# How tightly a node binds. A child gets parentheses if it binds less tightly than its place requires.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)


def format_query(query: Query) -> str:
    """The query as text.

    >>> from ouzel.lang import parse
    >>> print(format_query(parse("within 1hour event SEQ(Shelf a, ~Exit b) where [tag] and (a.weight>3)")))
    PATTERN SEQ(Shelf a, !(Exit b))
    WHERE   [tag] AND a.weight > 3
    WITHIN  1 h
    """
    check_depth(query)
    lines = [f"{_any_word(query.name)}:"] if query.name is not None else []
    lines.append(_pattern(query.pattern))
    if query.sources:
        lines.append(_clause("FROM", ", ".join(_type(name) for name in query.sources)))
    if query.selection is not None:
        lines.append(_strategy(query, query.selection))
    elif query.where is not None:
        lines.append(_clause("WHERE", _condition(query.where)))
    if query.group_by:
        lines.append(_clause("GROUP BY", ", ".join(_item(item) for item in query.group_by)))
    if query.aggregates:
        lines.append(_clause("AGG", ", ".join(_aggregate(aggregate) for aggregate in query.aggregates)))
    if query.having is not None:
        lines.append(_clause("HAVING", _condition(query.having)))
    if query.within is not None:
        lines.append(_clause("WITHIN", _text(query.within.extent) + (" EVENTS" if query.within.in_events else "")))
    if query.threshold is not None:
        suffix = " ON probability" if query.threshold.on_probability else ""
        lines.append(_clause("THRESHOLD", _text(query.threshold.value) + suffix))
    if query.output is not None:
        variable = "" if query.output.variable is None else f" {_name(query.output.variable)}"
        lines.append(_clause("OUTPUT", query.output.form.value + variable))
    if query.emit_on_change:
        lines.append("EMIT ON CHANGE")
    if query.returns is not None:
        lines.append(_clause("RETURN", _returns(query.returns)))
    if query.into is not None:
        lines.append(_clause("INTO", _type(query.into)))
    return "\n".join(lines)


def format_script(script: Script) -> str:
    """The script as text, with an empty line between queries.

    >>> from ouzel.lang import parse_script
    >>> print(format_script(parse_script("up: PATTERN Rise r; down: PATTERN Fall f")))
    up:
    PATTERN Rise r;
    <BLANKLINE>
    down:
    PATTERN Fall f;
    """
    return "\n\n".join(f"{format_query(query)};" for query in script.queries)


def format_expression(expression: Expr) -> str:
    """The expression as text.

    >>> from ouzel.lang import parse_expression
    >>> format_expression(parse_expression("((a.x) = b.x) and not(c.y in(1,2))"))
    'a.x = b.x AND NOT c.y IN (1, 2)'
    """
    check_depth(expression)
    return _text(expression)


def format_stream(stream: Pipeline) -> str:
    """An expression of the algebra as text, one clause per line.

    >>> from ouzel.lang.parser import parse_stream
    >>> print(format_stream(parse_stream("stream Stock a next (Stock where vol>9) b on b.price>a.price")))
    STREAM  Stock a
    NEXT    (Stock WHERE vol > 9) b ON b.price > a.price
    """
    check_depth(stream)
    first = _clause("STREAM", _stream(replace(stream, operations=())))
    return "\n".join([first, *(_clause(one.keyword, _operation_body(one)) for one in stream.operations)])


# ── Names ──────────────────────────────────────────────────────────────────────────────────────────


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _any_word(name: str) -> str:
    """A name at a place where even a keyword is a name: after a dot, after AS, in `[attr]`, before a colon."""
    return name if NAME.fullmatch(name) else _quoted(name)


def _name(name: str) -> str:
    return _quoted(name) if name.upper() in QUOTED_WORDS else _any_word(name)


def _type(name: str) -> str:
    return name if TYPE_NAME.fullmatch(name) and name.upper() not in QUOTED_WORDS else _quoted(name)


def _path(names: tuple[str, ...]) -> str:
    return "".join(f".{_any_word(name)}" for name in names)


# ── Clauses ────────────────────────────────────────────────────────────────────────────────────────


def _clause(keyword: str, body: str) -> str:
    return f"{keyword:<7} {body}"


def _pattern(pattern: syntax.Pattern) -> str:
    components = ", ".join(_part(part) for part in pattern.parts)
    if not pattern.bare:
        components = f"({components})" if pattern.notation is Notation.SEQUENCE else f"SEQ({components})"
    return f"{pattern.notation.value} {components}{_without(pattern.without)}"


def _part(part: Component | Group) -> str:
    if isinstance(part, Component):
        return _component(part) + _without(part.without)
    text = f"{part.kind.value}({', '.join(_part(one) for one in part.parts)})"
    if part.negated:
        return f"!({text})" if len(part.parts) > 1 else f"!({_part(part.parts[0])})"
    text += "" if (part.least, part.most) == (1, 1) else _quantifier(part.least, part.most)
    return text + _without(part.without)


def _without(components: tuple[Component, ...]) -> str:
    return "".join(f" WITHOUT {_component(replace(component, negated=False))}" for component in components)


def _quantifier(least: int, most: int | None) -> str:
    known = {(0, 1): "?", (1, None): "+", (0, None): "*"}
    if (least, most) in known:
        return known[least, most]
    if least == most:
        return f"{{{least}}}"
    return f"{{{least or ''},{'' if most is None else most}}}"


def _component(component: Component) -> str:
    types = ", ".join(_type(name.name) for name in component.types)
    if component.any_of:
        types = f"ANY({types})" if types else "ANY"
    if component.kleene:
        # {0,1} of a list is not `?`, which is of a single event.
        one = (component.least, component.most) == (0, 1)
        plus = "{,1}" if one else _quantifier(component.least, component.most)
    else:
        plus = "?" if component.least == 0 else ""
    if component.variable is None:
        text = types + plus
    elif not component.types and not component.any_of:
        text = _type(component.variable) + plus
    else:
        text = f"{types}{plus} {_name(component.variable)}{'[]' if component.kleene else ''}"
    if not component.negated:
        return text
    return f"!({text})" if types and component.variable is not None else f"!{text}"


def _strategy(query: Query, selection: syntax.Selection) -> str:
    kleene = {component.variable for component in query.pattern.components if component.kleene}
    variables = ", ".join(_name(name) + ("[]" if name in kleene else "") for name in selection.variables)
    if selection.steps:
        variables = ", ".join(
            f"{_name(step.variable)}{'[i]' if step.repeats else ''}: {step.contiguity.value}"
            for step in selection.steps
        )
    opening = selection.strategy.value + (f"({variables})" if variables else "") + " {"
    if query.where is None:
        return _clause("WHERE", f"{opening} }}")
    body = _condition(query.where, len(opening))
    if "\n" in body:
        return _clause("WHERE", f"{opening}\n{_INDENT}    {body}\n{_INDENT}}}")
    return _clause("WHERE", f"{opening} {body} }}")


def _condition(condition: Expr, used: int = 0) -> str:
    """A condition on one line if it fits; otherwise with one line for each operand of the outermost AND."""
    text = _text(condition)
    too_long = len(_INDENT) + used + len(text) > LINE_LENGTH
    if too_long and isinstance(condition, syntax.Logical) and condition.operator == "AND":
        return f"\n{_INDENT}AND ".join(_text(operand, _NOT) for operand in condition.operands)
    return text


def _item(item: syntax.Item) -> str:
    return _text(item.expression) + ("" if item.alias is None else f" AS {_any_word(item.alias)}")


def _aggregate(aggregate: syntax.Aggregate) -> str:
    text = aggregate.function.upper() if aggregate.function.isascii() else aggregate.function
    if aggregate.argument is not None:
        text += f"({_text(aggregate.argument)})"
    if aggregate.as_decimal:
        text += " AS DECIMAL"
    if aggregate.alias is not None:
        # Without quotes it would be read as the type of the count.
        decimal = aggregate.alias.upper() == "DECIMAL"
        text += f" AS {_quoted(aggregate.alias) if decimal else _any_word(aggregate.alias)}"
    return text


def _returns(returns: syntax.Return) -> str:
    items = ", ".join(_item(item) for item in returns.items)
    if returns.name is not None:
        name = _quoted(returns.name) if returns.name in AGGREGATE_WORDS else _name(returns.name)
        return f"{name}({items})"
    match returns.items:
        case (syntax.Item(expression=syntax.Call(), alias=None),):
            return f"({items})"  # Otherwise the function would be read as the name of the event.
    return items


# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


def _stream(stream: Pipeline) -> str:
    """A stream as an operand, in parentheses unless it is only a source."""
    source = stream.source
    text = _source(source) if isinstance(source, Source) else f"({_pipeline(source)})"
    if stream.alias is not None:
        is_keyword = stream.alias.upper() in STREAM_KEYWORDS
        text += f" {_quoted(stream.alias) if is_keyword else _name(stream.alias)}"
    return f"({_pipeline(stream)})" if stream.operations else text


def _pipeline(stream: Pipeline) -> str:
    first = _stream(replace(stream, operations=()))
    return " ".join([first, *(f"{one.keyword} {_operation_body(one)}" for one in stream.operations)])


def _source(source: Source) -> str:
    text = "ANY" if source.type is None else _type(source.type)
    if source.columns:
        text += f" ({', '.join(f'{_column_name(name)} {_column_type(kind)}' for name, kind in source.columns)})"
    return text if source.start is None else f"{text} START {_attribute(source.start)}"


def _column_name(name: str) -> str:
    # Before a type in quotes, or after a parenthesis, these words are not names.
    special = name.upper() in ("DATE", "TIMESTAMP", "INTERVAL", "ESCAPE", "DISTINCT")
    return _quoted(name) if special else _name(name)


def _column_type(kind: str) -> str:
    is_word = NAME.fullmatch(kind) and kind.upper() not in QUOTED_WORDS | STREAM_KEYWORDS
    return kind if is_word else _string(kind)


def _attribute(name: str) -> str:
    return _reference(reference_to(name))


def _operation_body(operation: Operation) -> str:
    values = ", ".join(
        _text(item.expression) + ("" if item.alias is None else f" AS {_attribute(item.alias)}")
        for item in operation.items
    )
    match operation.keyword:
        case "WHERE":
            assert operation.condition is not None
            return _condition(operation.condition)
        case "PROJECT" | "RENAME" | "EXTEND":
            return values or "()"
    assert operation.operand is not None
    text = _stream(operation.operand)
    text += "" if operation.condition is None else f" ON {_text(operation.condition)}"
    text += f" FIRST {values}" if values else ""
    match operation.step:
        case ():
            return text
        case (Operation(keyword="WHERE", condition=syntax.Expr() as condition),):
            return f"{text} WHILE {_text(condition)}"
    return f"{text} STEP ({' '.join(f'{one.keyword} {_operation_body(one)}' for one in operation.step)})"


# ── Expressions ────────────────────────────────────────────────────────────────────────────────────


def _binding(expression: Expr) -> int:
    match expression:
        case syntax.Logical(operator=operator):
            return _OR if operator == "OR" else _AND
        case syntax.Unary(operator=operator):
            return _NOT if operator == "NOT" else _UNARY
        case syntax.Binary(operator="+" | "-"):
            return _SUM
        case syntax.Binary(operator="*" | "/" | "%"):
            return _PRODUCT
        case syntax.Binary() | syntax.In() | syntax.Between() | syntax.Like() | syntax.IsNull() | syntax.Equivalence():
            return _PREDICATE
        case syntax.Presence() | syntax.Call(function="array_contains", arguments=(syntax.Reference(), _)):
            return _PREDICATE
    return _PRIMARY


def _text(expression: Expr, place: int = _OR) -> str:
    text = _bare(expression)
    return f"({text})" if _binding(expression) < place else text


def _bare(expression: Expr) -> str:
    match expression:
        case syntax.Literal(value=value):
            return _literal(value)
        case syntax.Percent(value=value):
            return f"{_number(value)}%"
        case syntax.Temporal(kind=kind, text=text):
            return f"{kind.value} {_string(text)}"
        case syntax.Duration(amount=amount, unit=unit):
            singular = unit.removesuffix("s") if amount == 1 and unit in ("days", "weeks") else unit
            return f"{_number(amount)} {singular}"
        case syntax.Parameter(name=name):
            return f":{name}"
        case syntax.Reference():
            return _reference(expression)
        case syntax.Call(function=function, arguments=arguments):
            if function == "count" and not arguments:
                return "count(*)"
            if function == "array_contains" and len(arguments) == 2 and isinstance(arguments[0], syntax.Reference):
                return f"{_text(arguments[1], _SUM)} IN {_reference(arguments[0])}"
            if function == "count_distinct":
                return f"count(DISTINCT {_list(arguments)})"
            return f"{function}({_list(arguments)})"
        case syntax.AnyElement(operand=operand, variable=variable, condition=condition):
            return f"any({_text(operand)}, {_name(variable)} -> {_text(condition)})"
        case syntax.Case():
            return _case(expression)
        case syntax.Equivalence(names=names, value=test):
            return f"[{_path(names)[1:]}{'' if test is None else f' = {_text(test, _SUM)}'}]"
    return _operation(expression)


def _operation(expression: Expr) -> str:
    match expression:
        case syntax.Logical(operator=operator, operands=operands):
            place = (_OR if operator == "OR" else _AND) + 1
            return f" {operator} ".join(_text(operand, place) for operand in operands)
        case syntax.Unary(operator="NOT", operand=operand):
            return f"NOT {_text(operand, _NOT)}"
        case syntax.Unary(operand=operand):
            return f"-{_text(operand, _PRIMARY)}"  # Never `--`, which begins a comment.
        case syntax.Binary(operator=operator, left=left, right=right):
            place = _binding(expression)
            # `5 % -x` would be read as a percentage minus x.
            right_place = _PRIMARY if operator == "%" else place + 1
            return f"{_text(left, max(place, _SUM))} {operator} {_text(right, right_place)}"
        case syntax.In(operand=operand, items=items, negated=negated):
            return f"{_text(operand, _SUM)}{_not(negated)} IN ({_list(items)})"
        case syntax.Between(operand=operand, low=low, high=high, negated=negated):
            return f"{_text(operand, _SUM)}{_not(negated)} BETWEEN {_text(low, _SUM)} AND {_text(high, _SUM)}"
        case syntax.Like(operand=operand, pattern=pattern, negated=negated, escape=escape):
            suffix = "" if escape is None else f" ESCAPE {_string(escape)}"
            return f"{_text(operand, _SUM)}{_not(negated)} LIKE {_text(pattern, _SUM)}{suffix}"
        case syntax.IsNull(operand=operand, negated=negated):
            return f"{_text(operand, _SUM)} IS{_not(negated)} NULL"
        case syntax.Presence(variable=variable, absent=absent):
            return f"{_name(variable)} IS {'ABSENT' if absent else 'PRESENT'}"
    raise TypeError(f"{type(expression).__name__} is not an expression")


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def _list(expressions: tuple[Expr, ...]) -> str:
    return ", ".join(_text(expression) for expression in expressions)


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(number: int | Decimal) -> str:
    text = str(number)
    # A Decimal must not come back as an int.
    return f"{text}.0" if isinstance(number, Decimal) and text.lstrip("-").isdigit() else text


def _literal(value: int | Decimal | str | bool | None) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return _string(value)
    return _number(value)


def _case(case: syntax.Case) -> str:
    parts = ["CASE"]
    if case.operand is not None:
        parts.append(_text(case.operand))
    parts += [f"WHEN {_text(when.condition)} THEN {_text(when.result)}" for when in case.whens]
    if case.otherwise is not None:
        parts.append(f"ELSE {_text(case.otherwise)}")
    return " ".join([*parts, "END"])


def _reference(reference: syntax.Reference) -> str:
    first, *rest = reference.names
    index = "" if reference.index is None else _index(reference.index)
    default = "" if reference.default is None else f"[{_text(reference.default)}]"
    return _name(first) + index + _path(tuple(rest)) + default


def _index(index: Index) -> str:
    match index.kind:
        case IndexKind.NUMBER:
            return f"[{index.offset}]"
        case IndexKind.ITERATION:
            return f"[i{index.offset:+d}]" if index.offset else "[i]"
        case IndexKind.LAST:
            return "[LEN]" if index.of is None else f"[{_name(index.of)}.LEN]"
        case IndexKind.BEFORE:
            return "[..i-1]"
        case IndexKind.ALL:
            return "[]"

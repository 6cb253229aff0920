"""From the rules of the grammar of row patterns to the syntax tree; expressions are built as those of queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ouzel.lang import row_syntax, syntax
from ouzel.lang.builder import Builder, Clause, _clause, _extent, _nodes, _refusal, _span, _values
from ouzel.lang.lexer import Token
from ouzel.lang.syntax import Expr


class RowBuilder(Builder):
    def row_pattern(self, children: list[Clause]) -> row_syntax.RowPattern:
        fields: dict[str, Any] = {}
        for clause in children:
            if clause.fields.keys() & fields.keys():
                raise _refusal(f"{clause.keyword} is written twice", clause.keyword_span)
            fields.update(clause.fields)
        if "pattern" not in fields:
            raise _refusal("there is no PATTERN clause", _span(children), "write PATTERN (A B+)")
        return row_syntax.RowPattern(**fields, span=_span(children))

    def partition_by(self, children: list[Any]) -> Clause:
        return _clause(children, keyword="PARTITION BY", partition_by=tuple(_nodes(children, Expr)))

    def order_by(self, children: list[Any]) -> Clause:
        return _clause(children, keyword="ORDER BY", order_by=tuple(_nodes(children, row_syntax.Sort)))

    def sort(self, children: list[Any]) -> row_syntax.Sort:
        types = {child.type for child in children if isinstance(child, Token)}
        nulls_first = True if "NULLS_FIRST" in types else False if "NULLS_LAST" in types else None
        return row_syntax.Sort(children[0], "DESC" in types, nulls_first, span=_span(children))

    def measures(self, children: list[Any]) -> Clause:
        return _clause(children, measures=tuple(_nodes(children, row_syntax.Measure)))

    def measure(self, children: list[Any]) -> row_syntax.Measure:
        return row_syntax.Measure(children[0], children[2].value, span=_span(children))

    def rows_per_match(self, children: list[Token]) -> Clause:
        one = children[0].type == "ONE_ROW_PER_MATCH"
        if one and len(children) > 1:
            words = " ".join(children[1].value.upper().split())
            raise _refusal(f"{words} needs ALL ROWS PER MATCH", _span(children[1:]))
        kinds = {
            "SHOW_EMPTY_MATCHES": row_syntax.Rows.SHOW_EMPTY,
            "OMIT_EMPTY_MATCHES": row_syntax.Rows.OMIT_EMPTY,
            "WITH_UNMATCHED_ROWS": row_syntax.Rows.WITH_UNMATCHED,
        }
        rows = row_syntax.Rows.ONE if one else row_syntax.Rows.SHOW_EMPTY
        if len(children) > 1:
            rows = kinds[children[1].type]
        return _clause(children, keyword="ROWS PER MATCH", rows=rows)

    def after_match(self, children: list[Token]) -> Clause:
        kinds = {
            "PAST_LAST_ROW": row_syntax.Skip.PAST_LAST_ROW,
            "TO_NEXT_ROW": row_syntax.Skip.TO_NEXT_ROW,
            "TO_FIRST": row_syntax.Skip.TO_FIRST,
            "TO_LAST": row_syntax.Skip.TO_LAST,
            "TO": row_syntax.Skip.TO_LAST,
        }
        variable = children[2].value if len(children) > 2 else None
        after = row_syntax.AfterMatch(kinds[children[1].type], variable, span=_span(children))
        return _clause(children, keyword="AFTER MATCH", after_match=after)

    def window(self, children: list[Any]) -> Clause:
        return _clause(children, within=_extent(children[1]))

    def subset(self, children: list[Any]) -> Clause:
        return _clause(children, subsets=tuple(_nodes(children, row_syntax.Subset)))

    def union(self, children: list[Any]) -> row_syntax.Subset:
        name, *variables = _values(children, "NAME")
        return row_syntax.Subset(name, tuple(variables), span=_span(children))

    def define(self, children: list[Any]) -> Clause:
        return _clause(children, definitions=tuple(_nodes(children, row_syntax.Definition)))

    def definition(self, children: list[Any]) -> row_syntax.Definition:
        return row_syntax.Definition(children[0].value, children[2], span=_span(children))

    # ── The pattern ────────────────────────────────────────────────────────────────────────────────

    def rows_pattern(self, children: list[Any]) -> Clause:
        inner = next(_nodes(children, row_syntax.Pattern), None)
        return _clause(children, pattern=inner or row_syntax.Pattern(span=_span(children[1:])))

    def alternation(self, children: list[Any]) -> row_syntax.Pattern:
        items = tuple(_nodes(children, row_syntax.Pattern))
        return items[0] if len(items) == 1 else row_syntax.Alternation(items, span=_span(children))

    def concatenated(self, children: list[row_syntax.Pattern]) -> row_syntax.Pattern:
        return children[0] if len(children) == 1 else row_syntax.Sequence(tuple(children), span=_span(children))

    def repeated(self, children: list[Any]) -> row_syntax.Pattern:
        item, (least, most, greedy, last) = children
        return row_syntax.Repeated(item, least, most, greedy, span=_span([item, last]))

    def repetition(self, children: list[Token]) -> tuple[int, int | None, bool, Token]:
        least, most = {"PLUS": (1, None), "STAR": (0, None), "QUESTION": (0, 1)}[children[0].type]
        return least, most, len(children) == 1, children[-1]

    def exact(self, children: list[Token]) -> tuple[int, int | None, bool, Token]:
        return self._bounds(children, children[1].value, children[1].value)

    def bounds(self, children: list[Token]) -> tuple[int, int | None, bool, Token]:
        comma = next(place for place, child in enumerate(children) if child.type == "COMMA")
        below = children[comma - 1].value if children[comma - 1].type == "NUMBER" else 0
        above = children[comma + 1].value if children[comma + 1].type == "NUMBER" else None
        return self._bounds(children, below, above)

    def _bounds(self, children: list[Token], least: Any, most: Any) -> tuple[int, int | None, bool, Token]:
        if not isinstance(least, int) or not isinstance(most, int | None):
            raise _refusal("a quantifier needs whole numbers", _span(children), "write {2,5}")
        if most is not None and most < least:
            raise _refusal(f"a quantifier cannot ask for at least {least} and at most {most}", _span(children))
        return least, most, children[-1].type != "QUESTION", children[-1]

    def variable(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Variable(children[0].value, span=_span(children))

    def group(self, children: list[Any]) -> row_syntax.Pattern:
        return replace(children[1], span=_span(children))  # type: ignore[no-any-return]

    def nothing(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Pattern(span=_span(children))

    def excluded(self, children: list[Any]) -> row_syntax.Pattern:
        return row_syntax.Excluded(children[1], span=_span(children))

    def permutation(self, children: list[Any]) -> row_syntax.Pattern:
        return row_syntax.Permutation(tuple(_nodes(children, row_syntax.Pattern)), span=_span(children))

    def anchor(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Anchor(children[0].type == "DOLLAR", span=_span(children))

    # ── Expressions that queries do not have ───────────────────────────────────────────────────────

    def concatenation(self, children: list[Any]) -> Expr:
        return syntax.Call("concat", (children[0], children[2]), span=_span(children))

    def visible(self, children: list[Any]) -> Expr:
        return row_syntax.Visible(children[0].type == "FINAL", children[1], span=_span(children))

    def call_of_rows(self, children: list[Any]) -> Expr:
        function = children[0].value.lower()
        if function != "count":
            raise _refusal("* can be used only in COUNT", _span(children[2:5]))
        rows = row_syntax.RowsOf(children[2].value, span=_span(children[2:5]))
        return syntax.Call(function, (rows,), span=_span(children))

"""Builds the syntax tree of a row pattern from the rules of its grammar. Expressions are built like those of
queries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ouzel.lang import row_syntax, syntax
from ouzel.lang.builder import Builder, Clause, clause_of, extent_of, nodes_of, refusal, span_of, values_of
from ouzel.lang.lexer import Token
from ouzel.lang.syntax import Expr


class RowBuilder(Builder):
    def row_pattern(self, children: list[Clause]) -> row_syntax.RowPattern:
        fields: dict[str, Any] = {}
        for clause in children:
            if clause.fields.keys() & fields.keys():
                raise refusal(f"{clause.keyword} is written twice", clause.keyword_span)
            fields.update(clause.fields)
        if "pattern" not in fields:
            raise refusal("there is no PATTERN clause", span_of(children), "write PATTERN (A B+)")
        return row_syntax.RowPattern(**fields, span=span_of(children))

    def partition_by(self, children: list[Any]) -> Clause:
        return clause_of(children, keyword="PARTITION BY", partition_by=tuple(nodes_of(children, Expr)))

    def order_by(self, children: list[Any]) -> Clause:
        return clause_of(children, keyword="ORDER BY", order_by=tuple(nodes_of(children, row_syntax.Sort)))

    def sort(self, children: list[Any]) -> row_syntax.Sort:
        types = {child.type for child in children if isinstance(child, Token)}
        nulls_first = True if "NULLS_FIRST" in types else False if "NULLS_LAST" in types else None
        return row_syntax.Sort(children[0], "DESC" in types, nulls_first, span=span_of(children))

    def measures(self, children: list[Any]) -> Clause:
        return clause_of(children, measures=tuple(nodes_of(children, row_syntax.Measure)))

    def measure(self, children: list[Any]) -> row_syntax.Measure:
        return row_syntax.Measure(children[0], children[2].value, span=span_of(children))

    def rows_per_match(self, children: list[Token]) -> Clause:
        one = children[0].type == "ONE_ROW_PER_MATCH"
        if one and len(children) > 1:
            words = " ".join(children[1].value.upper().split())
            raise refusal(f"{words} needs ALL ROWS PER MATCH", span_of(children[1:]))
        kinds = {
            "SHOW_EMPTY_MATCHES": row_syntax.Rows.SHOW_EMPTY,
            "OMIT_EMPTY_MATCHES": row_syntax.Rows.OMIT_EMPTY,
            "WITH_UNMATCHED_ROWS": row_syntax.Rows.WITH_UNMATCHED,
        }
        rows = row_syntax.Rows.ONE if one else row_syntax.Rows.SHOW_EMPTY
        if len(children) > 1:
            rows = kinds[children[1].type]
        return clause_of(children, keyword="ROWS PER MATCH", rows=rows)

    def after_match(self, children: list[Token]) -> Clause:
        kinds = {
            "PAST_LAST_ROW": row_syntax.Skip.PAST_LAST_ROW,
            "TO_NEXT_ROW": row_syntax.Skip.TO_NEXT_ROW,
            "TO_FIRST": row_syntax.Skip.TO_FIRST,
            "TO_LAST": row_syntax.Skip.TO_LAST,
            "TO": row_syntax.Skip.TO_LAST,
        }
        variable = children[2].value if len(children) > 2 else None
        after = row_syntax.AfterMatch(kinds[children[1].type], variable, span=span_of(children))
        return clause_of(children, keyword="AFTER MATCH", after_match=after)

    def window(self, children: list[Any]) -> Clause:
        return clause_of(children, within=extent_of(children[1]))

    def subset(self, children: list[Any]) -> Clause:
        return clause_of(children, subsets=tuple(nodes_of(children, row_syntax.Subset)))

    def union(self, children: list[Any]) -> row_syntax.Subset:
        name, *variables = values_of(children, "NAME")
        return row_syntax.Subset(name, tuple(variables), span=span_of(children))

    def define(self, children: list[Any]) -> Clause:
        return clause_of(children, definitions=tuple(nodes_of(children, row_syntax.Definition)))

    def definition(self, children: list[Any]) -> row_syntax.Definition:
        return row_syntax.Definition(children[0].value, children[2], span=span_of(children))

    # ── The pattern ────────────────────────────────────────────────────────────────────────────────

    def rows_pattern(self, children: list[Any]) -> Clause:
        inner = next(nodes_of(children, row_syntax.Pattern), None)
        return clause_of(children, pattern=inner or row_syntax.Pattern(span=span_of(children[1:])))

    def alternation(self, children: list[Any]) -> row_syntax.Pattern:
        items = tuple(nodes_of(children, row_syntax.Pattern))
        return items[0] if len(items) == 1 else row_syntax.Alternation(items, span=span_of(children))

    def concatenated(self, children: list[row_syntax.Pattern]) -> row_syntax.Pattern:
        return children[0] if len(children) == 1 else row_syntax.Sequence(tuple(children), span=span_of(children))

    def repeated(self, children: list[Any]) -> row_syntax.Pattern:
        item, (least, most, greedy, last) = children
        return row_syntax.Repeated(item, least, most, greedy, span=span_of([item, last]))

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
            raise refusal("a quantifier needs whole numbers", span_of(children), "write {2,5}")
        if most is not None and most < least:
            raise refusal(f"a quantifier cannot ask for at least {least} and at most {most}", span_of(children))
        return least, most, children[-1].type != "QUESTION", children[-1]

    def variable(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Variable(children[0].value, span=span_of(children))

    def group(self, children: list[Any]) -> row_syntax.Pattern:
        return replace(children[1], span=span_of(children))  # type: ignore[no-any-return]

    def nothing(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Pattern(span=span_of(children))

    def excluded(self, children: list[Any]) -> row_syntax.Pattern:
        return row_syntax.Excluded(children[1], span=span_of(children))

    def permutation(self, children: list[Any]) -> row_syntax.Pattern:
        return row_syntax.Permutation(tuple(nodes_of(children, row_syntax.Pattern)), span=span_of(children))

    def anchor(self, children: list[Token]) -> row_syntax.Pattern:
        return row_syntax.Anchor(children[0].type == "DOLLAR", span=span_of(children))

    # ── Expressions that queries do not have ───────────────────────────────────────────────────────

    def concatenation(self, children: list[Any]) -> Expr:
        return syntax.Call("concat", (children[0], children[2]), span=span_of(children))

    def visible(self, children: list[Any]) -> Expr:
        return row_syntax.Visible(children[0].type == "FINAL", children[1], span=span_of(children))

    def call_of_rows(self, children: list[Any]) -> Expr:
        function = children[0].value.lower()
        if function != "count":
            raise refusal("* can be used only in COUNT", span_of(children[2:5]))
        rows = row_syntax.RowsOf(children[2].value, span=span_of(children[2:5]))
        return syntax.Call(function, (rows,), span=span_of(children))

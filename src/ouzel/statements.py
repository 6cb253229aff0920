"""`ouzel.sql`: SQL statements with MATCH_RECOGNIZE, over tables that are given by name.

DuckDB runs the SQL around the clauses. A statement that only selects columns of one clause does not need DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ouzel.bind import parameter_names
from ouzel.bind.diagnostics import nearest
from ouzel.bind.row_patterns import STEPS_MAX
from ouzel.errors import InputError, QueryError
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.statements import Clause, Token, cut_clauses, tokens
from ouzel.runtime.inputs import as_table
from ouzel.runtime.recognize import match_recognize

# SQL sees the tables that are given, not files, extensions or variables of Python.
_CLOSED: dict[str, Any] = {"enable_external_access": "false", "python_enable_replacements": "false"}


def sql(
    statement: str,
    /,
    *,
    params: Mapping[str, Any] | None = None,
    max_steps_per_match: int = STEPS_MAX,
    **tables: Any,
) -> pa.Table:
    """The rows of an SQL statement, in which `table MATCH_RECOGNIZE (…)` may be used as a table.

    `tables` gives the tables by name. Each may be any input that `ouzel.match` takes. The statement sees no other
    tables, no files and no Python variables. DuckDB runs the SQL around the clauses: `pip install 'ouzel[sql]'`. A
    statement that only selects columns of one clause does not need DuckDB. `params` and `max_steps_per_match` are those
    of `match_recognize`.

    >>> import ouzel
    >>> ticks = [{"ts": 1, "price": 5}, {"ts": 2, "price": 3}, {"ts": 3, "price": 4}]
    >>> ouzel.sql('''
    ...     SELECT began, price AS top FROM ticks MATCH_RECOGNIZE (
    ...         ORDER BY ts
    ...         MEASURES FIRST(DOWN.ts) AS began, LAST(UP.price) AS price
    ...         PATTERN (DOWN+ UP+)
    ...         DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))''', ticks=ticks).to_pylist()
    [{'began': 2, 'top': 4}]
    """
    if not isinstance(statement, str):
        raise InputError(f"a statement must be a str, got {type(statement).__name__}")
    host = _Host(statement, {name: as_table(table) for name, table in tables.items()}, dict(params or {}))
    return host.answer(max_steps_per_match)


@dataclass
class _Host:
    """The tables that a statement reads, and the clauses that have been answered."""

    statement: str
    tables: dict[str, pa.Table]
    params: dict[str, Any]
    unused: set[str] = field(default_factory=set)
    _connection: Any = None

    def answer(self, steps_max: int) -> pa.Table:
        self.unused = set(self.params)

        def answered(clause: Clause) -> Token:
            with clause.placing():
                params = self._params_of(clause)
                found = match_recognize(self._table(clause), clause.text, params=params, max_steps_per_match=steps_max)
                if not found.column_names:
                    raise QueryError("the clause gives no columns", text=clause.text, start=0, hint="add MEASURES")
            return Token("word", self._add(found), clause.at)

        try:
            cut = cut_clauses(self.statement, list(tokens(self.statement, backslashes=False)), answered)
            if self.unused:
                raise QueryError(
                    f"no clause of the statement uses the parameter '{min(self.unused)}'",
                    hint="parameters are for MATCH_RECOGNIZE; write other values into the statement",
                )
            plain = self._plain(cut)
            return self._by_duckdb("".join(token.text for token in cut)) if plain is None else plain
        finally:
            if self._connection is not None:
                self._connection.close()

    def _params_of(self, clause: Clause) -> dict[str, Any]:
        used = parameter_names(parse_row_pattern(clause.text))
        self.unused -= used
        return {name: value for name, value in self.params.items() if name in used}

    def _add(self, table: pa.Table) -> str:
        """Add an answer as a table. Returns the name by which the rest of the statement reads it."""
        number = 1
        while (name := f"match_recognize_{number}") in self.tables or name in self.statement.lower():
            number += 1
        self.tables[name] = table
        if self._connection is not None:
            self._connection.register(name, table)
        return name

    def _table(self, clause: Clause) -> pa.Table:
        """The table in front of a clause."""
        named = [token for token in clause.table if token.kind != "space"]
        if len(named) == 1 and not clause.with_lists and (name := self._known(named[0])) is not None:
            return self.tables[name]
        return self._by_duckdb("".join(token.text for token in clause.source))

    def _known(self, token: Token) -> str | None:
        return _spelled(_name(token), self.tables)

    # ── Without DuckDB ─────────────────────────────────────────────────────────────────────────────

    def _plain(self, cut: list[Token]) -> pa.Table | None:
        """The answer of `SELECT * FROM t` or `SELECT a, m.b AS c FROM t AS m`; None for other statements."""
        words = [token for token in cut if token.kind != "space"]
        if words and words[-1].text == ";":
            words.pop()
        if len(words) < 4 or not words[0].is_word("select"):
            return None
        middle = next((at for at, token in enumerate(words) if token.is_word("from")), 0)
        rest = words[middle + 1 :]
        if not middle or not rest or (known := self._known(rest[0])) is None:
            return None
        alias = rest[2:] if len(rest) > 1 and rest[1].is_word("as") else rest[1:]
        if len(rest) > 1 and (len(alias) != 1 or _name(alias[0]) is None or alias[0].is_word(*_NEVER_ALIAS)):
            return None
        aliases = {known, *(name for one in alias if (name := _name(one)) is not None)}
        table = self.tables[known]
        if len(words[1:middle]) == 1 and words[1].text == "*":
            return table
        columns = _listed(words[1:middle], aliases)
        if columns is None:
            return None
        picked = []
        for token, name in columns:
            spelled = _spelled(_name(token), table.column_names)
            if spelled is None:
                raise QueryError(
                    f"the clause gives no column '{_name(token)}'",
                    text=self.statement,
                    start=token.at,
                    end=token.at + len(token.text),
                    hint=nearest(_name(token) or "", table.column_names)
                    or f"its columns are {', '.join(table.column_names)}",
                )
            picked.append((name or spelled, table.column(spelled)))
        return pa.table([column for _, column in picked], names=[name for name, _ in picked])

    # ── By DuckDB ──────────────────────────────────────────────────────────────────────────────────

    def _by_duckdb(self, statement: str) -> pa.Table:
        try:
            import duckdb
        except ModuleNotFoundError:
            raise InputError(
                "the SQL around MATCH_RECOGNIZE needs DuckDB: pip install 'ouzel[sql]'. Without it, write SELECT * or "
                "a list of columns, and FROM a table that is given by name"
            ) from None
        if self._connection is None:
            self._connection = duckdb.connect(config=_CLOSED)
            for name, table in self.tables.items():
                self._connection.register(name, table)
        try:
            found = self._connection.sql(statement)
            if found is None:
                raise InputError("the statement gives no rows; write a SELECT")
            return found.to_arrow_table()
        except duckdb.Error as error:
            known = ", ".join(self.tables) or "none"
            hint = f"; the tables given are {known}" if isinstance(error, duckdb.CatalogException) else ""
            raise InputError(f"DuckDB refuses the SQL around MATCH_RECOGNIZE: {error}{hint}") from None


_NEVER_ALIAS = (
    "where", "group", "order", "limit", "join", "inner", "left", "right", "full", "cross", "natural", "union", "having",
    "window", "qualify", "offset", "except", "intersect", "using", "sample", "tablesample", "asof", "positional",
    "anti", "semi", "fetch",
)  # fmt: skip


def _name(token: Token) -> str | None:
    """The name that a token is: a word, or a text in double quotes. None for other tokens."""
    if token.kind == "word":
        return token.text
    return token.text[1:-1].replace('""', '"') if token.text.startswith('"') and token.kind == "string" else None


def _spelled(name: str | None, names: Any) -> str | None:
    """A name as it is spelled among `names`. A name in the same case is preferred to others; None if there is none."""
    if name is None or name in names:
        return name
    alike = [one for one in names if one.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _listed(words: list[Token], aliases: set[str]) -> list[tuple[Token, str | None]] | None:
    """The columns of a select list, each with its new name, if it has one; None if the list contains anything else."""
    columns: list[tuple[Token, str | None]] = []
    item: list[Token] = []
    for token in [*words, Token("other", ",", 0)]:
        if token.text != "," or token.kind != "other":
            item.append(token)
            continue
        if len(item) > 2 and item[1].text == "." and _spelled(_name(item[0]), aliases) is not None:
            item = item[2:]
        renamed = None
        if len(item) == 3 and item[1].is_word("as"):
            renamed = _name(item[2])
            if renamed is None:
                return None
            item = item[:1]
        if len(item) != 1 or _name(item[0]) is None or item[0].is_word("null", "true", "false", "distinct"):
            return None
        columns.append((item[0], renamed))
        item = []
    return columns

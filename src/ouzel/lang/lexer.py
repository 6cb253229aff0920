"""From text to tokens. The lexer decides all that depends on context, so that the grammar is LALR(1):

- keywords are case-insensitive; after a dot, after AS and in `[attr]` every word is a name; - a hyphen is part of a
name only in the name of a type or a stream; - `[` opens an index, an AYAC default or an equivalence test; `[…]` and
`<…>` around a clause are skipped; - a number with a unit or percent sign after it is one token (`10s`, `12 hours`,
`80%*x`), but `x %500` is a remainder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ouzel.errors import QueryError
from ouzel.lang.hints import CHARACTERS, UNITS
from ouzel.lang.syntax import DEPTH_MAX, NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX, Duration, Span, Temporal, TemporalKind
from ouzel.lang.vocabulary import (
    AGGREGATE_WORDS,
    CASE_KEYWORDS,
    CLAUSE_KEYWORDS,
    LIKE_WORDS,
    NAME,
    OPERATOR_KEYWORDS,
    OPERATOR_OF_SYMBOL,
    PRESENCE_WORDS,
    SYMBOLS,
    TYPE_NAME,
    UNIT_OF_WORD,
    UNITS_HINT,
)


@dataclass(slots=True)
class Token:
    """A terminal of the grammar, with its decoded value."""

    type: str
    value: Any
    start: int
    end: int
    quoted: bool = False


END_OF_TEXT = "$END"

_BLANK = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_SYMBOL = re.compile("|".join(re.escape(symbol) for symbol in sorted(SYMBOLS, key=len, reverse=True)))
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_INTERVAL = re.compile(r"\s*([0-9.eE+]+)\s*([^\W\d]\w*)?\s*")
_CLOSERS = {
    "RPAR": {"LPAR"},
    "RBRACE": {"LBRACE"},
    "RSQB": {"INDEX", "DEFAULT", "EQUIVALENCE", "CLAUSE"},
    "END": {"CASE"},
}
_OPERAND_ENDS = frozenset({"NAME", "RPAR", "RSQB", "STRING", "PARAMETER", "END"})
# After these a `<` cannot be a comparison: it opens the body of a clause, as A-Seq writes it.
_CLAUSE_TYPES = frozenset(CLAUSE_KEYWORDS.values())


def tokenize(text: str, *, queries: bool = True) -> Iterator[Token]:
    """The tokens of the text. The last one has type END_OF_TEXT. Use `queries=False` for an expression that is not in a
    query.

    Errors have a position but no text, which the caller adds.

    >>> [token.type for token in tokenize("a.price > 80%*b.price", queries=False)]
    ['NAME', 'DOT', 'NAME', 'COMPARE', 'PERCENT', 'STAR', 'NAME', 'DOT', 'NAME', '$END']
    """
    return _mark_event_names(Lexer(text, queries).tokens())


def _mark_event_names(tokens: Iterator[Token]) -> Iterator[Token]:
    """Mark the name in `RETURN Name(…)` as the name of the event. If anything follows the parentheses, it is a function
    call. It is also a call if the name is that of an aggregate and no column in the parentheses is named by AS.
    """
    for token in tokens:
        yield token
        if token.type == "RETURN":
            held = list(_possible_event(tokens))
            named = len(held) > 2 and (held[0].quoted or held[-1].type in _CLAUSE_TYPES | {END_OF_TEXT, "SEMICOLON"})
            if named and (held[0].quoted or held[0].value not in AGGREGATE_WORDS or _names_a_column(held)):
                held[0].type = "EVENT_NAME"
            yield from held


def _names_a_column(held: Sequence[Token]) -> bool:
    depth = 0
    for token in held:
        depth += {"LPAR": 1, "RPAR": -1}.get(token.type, 0)
        if token.type == "AS" and depth == 1:
            return True
    return False


def _possible_event(tokens: Iterator[Token]) -> Iterator[Token]:
    """A name, the tokens in parentheses after it, and the token after those. Only the first ones if no parentheses
    follow.
    """
    depth = 0
    for position, token in enumerate(tokens):
        yield token
        closed = position > 1 and depth == 0
        otherwise = position < 2 and token.type != ("NAME", "LPAR")[position]
        if closed or otherwise or token.type in _CLAUSE_TYPES:
            return
        depth += {"LPAR": 1, "RPAR": -1}.get(token.type, 0)


class Lexer:
    def __init__(self, text: str, queries: bool) -> None:
        self.text = text
        self.queries = queries
        self.position = 0
        self.previous = ""  # The type of the token before this one.
        self.dotted = False  # The previous token is a name after a dot.
        self.after_is = False  # The previous token is IS, or NOT after it.
        self.clause = ""
        self.at_start = queries
        self.open: list[tuple[str, int]] = []  # Brackets and CASEs not yet closed.

    def tokens(self) -> Iterator[Token]:
        if self.text.startswith("\ufeff"):
            self.position = 1
        while True:
            self.position = self._after_blank(self.position)
            if self.position >= len(self.text):
                self._close_everything()
                yield Token(END_OF_TEXT, "", self.position, self.position)
                return
            token = self._next()
            if token is None:
                continue
            self.dotted = token.type == "NAME" and self.previous == "DOT"
            self.after_is = token.type == "IS" or (token.type == "NOT" and self.previous == "IS")
            self.previous = token.type
            self.position = token.end
            self.at_start = False
            if token.type in _CLAUSE_TYPES:
                self.clause = token.type
            elif token.type == "SEMICOLON":
                self._close_everything()
                self.clause, self.at_start = "", self.queries
            yield token

    # ── One token ──────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Token | None:
        """The token at this position; None if the text here is skipped."""
        character = self.text[self.position]
        if character == "'":
            value, end = self._quoted(self.position, "string")
            return Token("STRING", value, self.position, end)
        if character in '"`':
            value, end = self._quoted(self.position, "name")
            if not value:
                raise QueryError("a name cannot be empty", start=self.position, end=end)
            return self._name(value, end, quoted=True)
        if character.isdigit() and character.isascii():
            return self._number()
        point_begins = character == "." and self.previous not in ("NAME", "RSQB", "RPAR")
        if point_begins and _NUMBER.match(self.text, self.position):
            return self._number()
        if character == ":":
            # No parameter can follow a name: contiguity(b: next).
            if self.previous in ("NAME", "RSQB") and self.clause == "WHERE" and self._inside("LPAR"):
                return Token("COLON", ":", self.position, self.position + 1)
            return self._parameter()
        if NAME.match(self.text, self.position):
            return self._word()
        return self._symbol()

    def _word(self) -> Token:
        start = self.position
        match = (TYPE_NAME if self._type_expected() else NAME).match(self.text, start)
        assert match is not None
        word, end = match[0], match.end()
        in_test = self.previous in ("EQUIVALENCE", "COMMA") and self._inside("EQUIVALENCE")
        if in_test or self.previous in ("DOT", "AS"):
            return Token("NAME", word, start, end)
        if self.at_start and self._peek(end) == ":":
            return self._name(word, end, quoted=False)
        upper = word.upper() if word.isascii() else word
        if upper == "INTERVAL" and (self._peek(end) == "'" or self._peek(end).isdigit()):
            return self._interval(self._after_blank(end))
        if upper in CLAUSE_KEYWORDS and self._type_expected() and self._inside("LPAR"):
            return Token("NAME", word, start, end)  # SEQ(Order o, Return r): no clause can begin here.
        keyword = self._keyword(word, end)
        if keyword is None:
            return Token("NAME", word, start, end)
        if keyword == "TEMPORAL":
            return self._temporal(TemporalKind(upper), self._after_blank(end))
        if keyword == "CASE":
            self._push("CASE", start)
        elif keyword == "END":
            self._pop("END", start, end)
        if keyword in _CLAUSE_TYPES:
            _, end = self._clause_at(start) or ("", end)
        return Token(keyword, word, start, end)

    def _keyword(self, word: str, end: int) -> str | None:
        """The terminal of a keyword at this place; None if the word is a name. `end` is where the word ends."""
        if not word.isascii():  # No letter of another alphabet may become a keyword in upper case.
            return None
        upper = word.upper()
        if upper in CLAUSE_KEYWORDS:
            clause = self._clause_at(end - len(word))
            return clause[0] if clause else None
        if self.clause == "OUTPUT":
            return None
        if upper in OPERATOR_KEYWORDS:
            return upper
        if self._is_operator(upper, end):
            return "LIKE"
        if upper == "DISTINCT" and self.previous == "LPAR" and self._operand_at(end):
            return upper
        if upper in CASE_KEYWORDS:
            is_function = upper == "END" and self._peek(end) == "("  # end(v)
            return upper if self._inside("CASE") and not is_function else None
        in_pattern = self.clause in ("PATTERN", "SEQUENCE")
        if in_pattern and (upper == "SEQ" or (upper == "ANY" and (self._type_expected() or self._peek(end) == "("))):
            return upper
        if in_pattern and upper == "WITHOUT" and not self._type_expected() and self._component_at(end):
            return upper
        if upper in PRESENCE_WORDS and self.after_is:
            return upper
        if (upper == "EVENTS" and self.clause == "WITHIN") or (upper == "ON" and self.clause == "THRESHOLD"):
            return upper
        if upper in ("DATE", "TIMESTAMP", "ESCAPE") and self._peek(end) == "'":
            return upper if upper == "ESCAPE" else "TEMPORAL"
        return None

    def _is_operator(self, upper: str, end: int) -> bool:
        """Whether a word such as RLIKE is an operator, because it is between two operands. Elsewhere it is a name or a
        function.
        """
        if upper not in LIKE_WORDS or self.clause in ("PATTERN", "SEQUENCE", "FROM", "INTO"):
            return False
        return self.previous in _OPERAND_ENDS or (self.previous == "NOT" and self._peek(end) != "(")

    def _name(self, value: str, end: int, quoted: bool) -> Token:
        colon = self._after_blank(end)
        if self.at_start and self.text.startswith(":", colon):
            return Token("QUERY_NAME", value, self.position, colon + 1, quoted)
        return Token("NAME", value, self.position, end, quoted)

    def _symbol(self) -> Token | None:
        start = self.position
        match = _SYMBOL.match(self.text, start)
        if match is None:
            raise self._unknown_character(start)
        symbol, end = match[0], match.end()
        # Before `<>`, `>=` and the like: the angle brackets of A-Seq are single characters.
        if symbol[0] == "<" and self.previous in _CLAUSE_TYPES and not self._inside("ANGLE"):
            self._push("ANGLE", start)
            self.position = start + 1
            return None
        if symbol == ">" and self._inside("ANGLE") and self._clause_ends(end):
            self.open.pop()
            self.position = end
            return None
        kind = SYMBOLS[symbol]
        if kind == "LSQB":
            kind = self._bracket(end)
            if kind == "CLAUSE":
                self._push("CLAUSE", start)
                self.position = end
                return None
        if kind in ("LPAR", "LBRACE", "INDEX", "DEFAULT", "EQUIVALENCE"):
            self._push(kind, start)
        elif kind in _CLOSERS and self._pop(kind, start, end) == "CLAUSE":
            self.position = end
            return None
        return Token(kind, OPERATOR_OF_SYMBOL.get(symbol, symbol), start, end)

    def _bracket(self, after: int) -> str:
        """The kind of bracket that a `[` opens."""
        word = self._after_blank(after)
        if self._clause_at(word):
            match = NAME.match(self.text, word)
            assert match is not None
            if self._peek(match.end()) not in ("]", ",", "=", "."):
                return "CLAUSE"
        if self.previous == "NAME":
            return "DEFAULT" if self.dotted else "INDEX"
        return "EQUIVALENCE"

    def _parameter(self) -> Token:
        match = NAME.match(self.text, self.position + 1)
        if match is None:
            hint = "a parameter is written :name; to compare without regard to case, a.x ILIKE 'text%'"
            if self.text.startswith("::", self.position):
                hint = "write CAST(x AS INTEGER)"
            raise QueryError("unexpected ':'", start=self.position, end=self.position + 1, hint=hint)
        return Token("PARAMETER", match[0], self.position, match.end())

    # ── Numbers, times and quoted text ────────────────────────────────────────────────────────────

    def _number(self) -> Token:
        start = self.position
        match = _NUMBER.match(self.text, start)
        assert match is not None
        value, end = number_value(match[0], start), match.end()
        follower = self._after_blank(end)
        if self.text.startswith("%", follower) and not self._operand_at(follower + 1):
            return Token("PERCENT", value, start, follower + 1)
        word = NAME.match(self.text, follower)
        if word is None or self._keyword(word[0], word.end()):
            return Token("NUMBER", value, start, end)
        unit = self._unit(word[0], word.start(), word.end())
        return Token("DURATION", Duration(value, unit, span=Span(start, word.end())), start, word.end())

    def _operand_at(self, position: int) -> bool:
        """Whether an operand follows, so that the % before it is a remainder. A sign counts as an operator."""
        position = self._after_blank(position)
        word = NAME.match(self.text, position)
        if word is not None:
            return self._keyword(word[0], word.end()) in (None, "CASE", "TRUE", "FALSE", "NULL", "TEMPORAL")
        return self.text[position : position + 1] in tuple("0123456789.'\"`(:")

    @staticmethod
    def _unit(word: str, start: int, end: int) -> str:
        unit = UNIT_OF_WORD.get(word.lower())
        if unit is None:
            hint = UNITS.get(word.upper(), UNITS_HINT)
            raise QueryError(f"there is no unit of time {shorten(word)}", start=start, end=end, hint=hint)
        return unit

    def _interval(self, position: int) -> Token:
        start = self.position
        if self.text[position] == "'":
            written, end = self._quoted(position, "string")
            match = _INTERVAL.fullmatch(written)
            number = _NUMBER.fullmatch(match[1]) if match else None
            if match is None or number is None:
                raise QueryError(
                    f"{shorten(written)} is not an interval", start=position, end=end, hint="write INTERVAL '12 hours'"
                )
            value = number_value(number[0], position)
            if match[2]:
                unit = self._unit(match[2], position, end)
                return Token("DURATION", Duration(value, unit, span=Span(start, end)), start, end)
        else:
            number = _NUMBER.match(self.text, position)
            if number is None:  # A digit of another script.
                raise self._unknown_character(position)
            value, end = number_value(number[0], position), number.end()
        word = NAME.match(self.text, self._after_blank(end))
        if word is None:
            raise QueryError("an interval needs a unit", start=start, end=end, hint=UNITS_HINT)
        unit = self._unit(word[0], word.start(), word.end())
        return Token("DURATION", Duration(value, unit, span=Span(start, word.end())), start, word.end())

    def _temporal(self, kind: TemporalKind, position: int) -> Token:
        written, end = self._quoted(position, "string")
        if not _is_temporal(kind, written):
            hint = "write DATE '2024-05-01'" if kind is TemporalKind.DATE else "write TIMESTAMP '2024-05-01 12:00:00'"
            raise QueryError(f"{shorten(written)} is not a {kind.value.lower()}", start=position, end=end, hint=hint)
        start = self.position
        return Token("TEMPORAL", Temporal(kind, written, span=Span(start, end)), start, end)

    def _quoted(self, start: int, what: str) -> tuple[str, int]:
        """(text, end): the text between quotes, in which doubled quotes become one, and where it ends."""
        quote = self.text[start]
        end = start + 1
        while True:
            end = self.text.find(quote, end)
            if end < 0:
                raise QueryError(
                    f"this {what} is never closed", start=start, end=start + 1, hint=f"it needs a second {quote}"
                )
            if not self.text.startswith(quote, end + 1):
                return self.text[start + 1 : end].replace(quote * 2, quote), end + 1
            end += 2

    # ── Looking around ─────────────────────────────────────────────────────────────────────────────

    def _after_blank(self, position: int) -> int:
        match = _BLANK.match(self.text, position)
        position = match.end() if match else position
        if self.text.startswith("/*", position):
            raise QueryError("this comment is never closed", start=position, end=position + 2, hint="it needs a */")
        return position

    def _peek(self, position: int) -> str:
        position = self._after_blank(position)
        return self.text[position : position + 1]

    def _clause_at(self, position: int) -> tuple[str, int] | None:
        """(clause, end of its keywords) of the clause that begins here; None if none does."""
        match = NAME.match(self.text, position)
        if match is None or not match[0].isascii():
            return None
        clause = CLAUSE_KEYWORDS.get(match[0].upper())
        end = match.end()
        for word in {"GROUP_BY": ("BY",), "EMIT_ON_CHANGE": ("ON", "CHANGE")}.get(clause or "", ()):
            match = NAME.match(self.text, self._after_blank(end))
            if match is None or match[0].upper() != word:
                return None
            end = match.end()
        return (clause, end) if clause else None

    def _clause_ends(self, position: int) -> bool:
        position = self._after_blank(position)
        follower = self.text[position : position + 1]
        if follower == "[":
            return self._clause_at(self._after_blank(position + 1)) is not None
        return follower in ("", ";", "]") or self._clause_at(position) is not None

    def _type_expected(self) -> bool:
        if self.clause in ("PATTERN", "SEQUENCE"):
            return self.previous in ("PATTERN", "SEQUENCE", "LPAR", "COMMA", "NOT", "BAR", "WITHOUT")
        return self.clause in ("FROM", "INTO") and self.previous in ("FROM", "INTO", "COMMA")

    def _component_at(self, position: int) -> bool:
        """Whether a component may begin here, so that a WITHOUT before it is not a variable."""
        position = self._after_blank(position)
        begins = self.text[position : position + 1] in tuple('("`') or NAME.match(self.text, position) is not None
        return begins and self._clause_at(position) is None

    # ── Brackets ───────────────────────────────────────────────────────────────────────────────────

    def _inside(self, kind: str) -> bool:
        return bool(self.open) and self.open[-1][0] == kind

    def _push(self, kind: str, start: int) -> None:
        if len(self.open) >= DEPTH_MAX:
            raise QueryError(f"nested too deep: more than {DEPTH_MAX} levels", start=start, end=start + 1)
        self.open.append((kind, start))

    def _pop(self, closer: str, start: int, end: int) -> str:
        wanted = _CLOSERS[closer]
        if self.open and self.open[-1][0] in wanted:
            return self.open.pop()[0]
        if any(kind in wanted for kind, _ in self.open):
            raise self._never_closed()
        raise QueryError(f"this {self.text[start:end]} closes nothing", start=start, end=end)

    def _close_everything(self) -> None:
        if self.open:
            raise self._never_closed()

    def _never_closed(self) -> QueryError:
        kind, start = self.open[-1]
        width = 4 if kind == "CASE" else 1
        closer = {"CASE": "END", "LPAR": ")", "LBRACE": "}", "ANGLE": ">"}.get(kind, "]")
        opener = self.text[start : start + width]
        return QueryError(f"this {opener} is never closed", start=start, end=start + width, hint=f"it needs a {closer}")

    def _unknown_character(self, position: int) -> QueryError:
        character = self.text[position]
        hint = CHARACTERS.get(character)
        shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
        return QueryError(f"unexpected character {shown}", start=position, end=position + 1, hint=hint)


def number_value(written: str, start: int) -> int | Decimal:
    """An int if the number has no point and no exponent, otherwise a Decimal.

    >>> number_value("42", 0), number_value("1.50", 0)
    (42, Decimal('1.50'))
    """
    mantissa, _, exponent = written.lower().partition("e")
    end = start + len(written)
    if len(mantissa) > NUMBER_DIGITS_MAX:
        raise QueryError(f"a number may have at most {NUMBER_DIGITS_MAX} digits", start=start, end=end)
    if len(exponent) > 9 or abs(int(exponent or "0")) > NUMBER_EXPONENT_MAX:
        raise QueryError(f"an exponent may be at most {NUMBER_EXPONENT_MAX}", start=start, end=end)
    return int(written) if written.isdigit() else Decimal(written)


def _is_temporal(kind: TemporalKind, written: str) -> bool:
    match = (_DATE if kind is TemporalKind.DATE else _TIMESTAMP).fullmatch(written)
    if match is None:
        return False
    try:
        date.fromisoformat(written[:10])
        if kind is TemporalKind.TIMESTAMP:
            datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[3] or ''}{match[4] or ''}")
    except ValueError:
        return False
    return True


def shorten(written: str) -> str:
    """The text in quotes, on one line, and cut off if it is long.

    >>> print(shorten("x" * 100))
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    written = re.sub(r"\s+", " ", written)
    return f"'{written}'" if len(written) <= 40 else f"'{written[:39]}…'"

"""No text may crash the parser: whatever is not a query is a QueryError, and whatever is one survives the round trip.
No text may hang it, nor the binder: effort grows with the text, not faster.

The number of inputs comes from OUZEL_FUZZ_INPUTS; `make test-long` asks for 200,000.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable

import ouzel
import ouzel.algebra
from ouzel.errors import QueryError
from ouzel.lang import (
    format_expression,
    format_query,
    format_script,
    format_stream,
    parse,
    parse_expression,
    parse_script,
    parse_stream,
)
from ouzel.lang.parser import is_stream
from ouzel.lang.stream_lexer import KEYWORDS as STREAM_KEYWORDS
from ouzel.lang.vocabulary import CASE_KEYWORDS, CLAUSE_KEYWORDS, OPERATOR_KEYWORDS, SYMBOLS, UNIT_OF_WORD
from tests.lang.papers import FORMULAS, QUERIES
from tests.lang.test_parser import ALL_CLAUSES

INPUTS = int(os.environ.get("OUZEL_FUZZ_INPUTS", "2000"))

VALID = [query.text for query in [*QUERIES, *FORMULAS]] + [
    "\n".join(ALL_CLAUSES),
    "up: PATTERN SEQ(Rise r, !(Fall f)) WITHIN 3 days; down: PATTERN Fall f OUTPUT FIRST;",
    "a.x NOT BETWEEN 1 AND 2.5e3 OR a.y LIKE '%''_' ESCAPE '_' AND CASE a.z WHEN 1 THEN 'x' ELSE NULL END IS NOT NULL",
    "TIMESTAMP '2024-05-01 12:00:00Z' - INTERVAL '3' days > DATE '2024-05-01' -- why\n",
    "STREAM (A (x int) START s WHERE x > 3 UNION B) a RENAME a.x AS y PROJECT y"
    " NEXT (B EXTEND x + 1 AS z) b ON DUR < 5",
    "STREAM Stock a FOLD Stock b ON b.name = a.name FIRST a.price AS b.price WHILE b.price > b.price.last",
    "STREAM ANY FOLD A STEP (WHERE x > x.last EXTEND n.last + 1 AS n)",
]
WORDS = [
    *sorted(STREAM_KEYWORDS), "STREAM",
    *CLAUSE_KEYWORDS, *OPERATOR_KEYWORDS, *CASE_KEYWORDS, *SYMBOLS, *UNIT_OF_WORD, "BY", "ON", "CHANGE", "SEQ", "ANY",
    "EVENTS", "skip_till_next_match", "strict_contiguity", "OUTPUT SKIP TO LAST", "i", "LEN", "a", "b", "A", "x.y",
    "SHELF-READING", "v[i]", "v[", "x.id[", "[id]", "[from", "name:", "1", "2.5", "1e9", ".5", "80%", "10s", "'s'", "'",
    '"n"', '"', "`", "--", "\n", "/*", "*/", ":", ":p", "DATE '2024-01-01'", "TIMESTAMP '", "INTERVAL '1 day'",
    "INTERVAL 1", "\0", "\ud800", "é", "\u202e", "₁", "²",
]  # fmt: skip
READERS: list[tuple[Callable[[str], object], Callable[..., str]]] = [
    (parse, format_query),
    (parse_script, format_script),
    (parse_expression, format_expression),
    (parse_stream, format_stream),
]


def mutated(source: random.Random) -> str:
    """A valid text with a few pieces removed, doubled, swapped, or replaced."""
    text = source.choice(VALID)
    for _ in range(source.randint(1, 4)):
        start = source.randint(0, len(text))
        end = min(len(text), start + source.choice([0, 1, 1, 2, 5, 20]))
        piece = source.choice(
            ["", "", source.choice(WORDS), f" {source.choice(WORDS)} ", text[start:end] * 2, character(source)]
        )
        text = text[:start] + piece + text[end:]
    return text


def soup(source: random.Random) -> str:
    glue = source.choice(["", " ", " "])
    beginning = source.choice(
        ["", "PATTERN ", "PATTERN A a WHERE ", "PATTERN SEQ(", "PATTERN A a RETURN ", "STREAM ", "STREAM A NEXT ("]
    )
    return beginning + glue.join(source.choices(WORDS, k=source.randint(1, 30)))


def character(source: random.Random) -> str:
    return chr(source.randrange(source.choice([0x80, 0x300, 0x3000, 0x110000])))


def noise(source: random.Random) -> str:
    if source.random() < 0.5:
        return source.randbytes(source.randint(0, 60)).decode("latin-1")
    return "".join(character(source) for _ in range(source.randint(0, 40)))


def nest(source: random.Random) -> str:
    opening = source.choice(
        ["(", "[", "{", "f(", "NOT ", "- ", "x.a[", "CASE WHEN ", "1 + ", "a AND ", "!(", "SEQ(", "<", "a = "]
    )
    return source.choice(["", "PATTERN ", "PATTERN A a WHERE "]) + opening * source.choice([3, 99, 101, 400]) + "x"


def swollen(source: random.Random) -> str:
    """A valid text, perhaps mutated, with a piece of it repeated or nested many times."""
    text = (source.choice(VALID) if source.random() < 0.6 else mutated(source)) or "x"
    pieces = list(re.finditer(r"\w+|[^\w\s]+|\s+", text))
    first = source.randrange(len(pieces))
    last = min(len(pieces), first + source.choice([1, 1, 2, 3, 5, 8, 13]))
    start, end = pieces[first].start(), pieces[last - 1].end()
    glue = source.choice(["", " ", ", ", " AND ", " OR ", " + ", " = ", ".", " NOT ", "("])
    times = min(source.choice([10, 100, 1_000, 5_000]), 50_000 // (end - start + len(glue)) + 1)
    closing = ")" * (times - 1) if glue == "(" and source.random() < 0.5 else ""
    return text[:start] + glue.join([text[start:end]] * times) + closing + text[end:]


def test_no_text_takes_long_to_be_bound_or_refused() -> None:
    source = random.Random(20190317)
    accepted = 0
    for _ in range(INPUTS // 10):
        text = source.choice([swollen, swollen, swollen, mutated])(source)
        before = time.process_time()
        try:
            ouzel.algebra.from_text(text) if is_stream(text) else ouzel.query(text)
            accepted += 1
        except QueryError as error:
            assert len(str(error)) < 25_000, text[:200]
        # A generous guard: a text of 100 KB takes about a second of one core.
        taken = time.process_time() - before
        assert taken < 3 + len(text) * 1e-4, f"{taken:.1f} s for {len(text):,} characters: {text[:500]}"
    assert accepted > INPUTS / 1000


def test_only_query_errors_come_out() -> None:
    source = random.Random(20060627)
    makers = source.choices([mutated, soup, noise, nest], [60, 25, 14, 1], k=INPUTS)
    accepted = 0
    for make in makers:
        text = make(source)
        read, write = source.choice(READERS)
        try:
            tree = read(text)
        except QueryError as error:
            assert str(error).encode(), text
            continue
        accepted += 1
        assert read(write(tree)) == tree, text
    print(f"fuzzed the parser with {INPUTS:,} inputs, {accepted:,} of which were valid")
    # Else the inputs would only ever try the first few tokens.
    assert accepted > INPUTS / 50

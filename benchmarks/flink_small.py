"""Streams of a few events, asked of Flink CEP and of Ouzel: where answers are alike and where they differ.

Each case has both answers, as they were found; a run with Flink checks both, the tests check Ouzel's. A step of a
pattern takes the events whose type is the step's name, unless the case says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from benchmarks import flink_java
from benchmarks.kleene_worlds import answer

NOTE = (
    "Each stream is written as types with their times, and values if they matter. Each step takes the events "
    "whose type is its name. [What differs from Flink CEP](../../docs/from-flink.md) explains the lines with different "
    "answers."
)
HEADINGS = ["stream", "Flink CEP", "finds", "Ouzel", "finds"]


@dataclass(frozen=True, slots=True)
class Case:
    """A stream, a pattern of Flink, a query, and what each finds."""

    stream: str
    pattern: str
    flink: str
    query: str
    ouzel: str


def next_match(pattern: str, conditions: str = "") -> str:
    return f"PATTERN {pattern} WHERE skip_till_next_match {{ {conditions or 'TRUE'} }} WITHIN 100"


def strict(pattern: str) -> str:
    return f"PATTERN {pattern} WHERE strict_contiguity {{ TRUE }} WITHIN 100"


def any_match(pattern: str, conditions: str = "") -> str:
    where = f" WHERE {conditions}" if conditions else ""
    return f"PATTERN {pattern}{where} WITHIN 100"


SEQUENCE = "SEQ(A a, B b)"
REPEATED = "SEQ(A+ a[], B b)"
ATTACK = next_match("SEQ(F+ f[], !(R r), S s)", "f.LEN >= 3")
FLINK_ATTACK = 'begin("f").timesOrMore(3).greedy().notFollowedBy("r").followedBy("s")'
ONLY_NEIGHBOURS = "within(Duration.ofMillis(10), WithinType.PREVIOUS_AND_CURRENT)"

CASES = (
    # Steps.
    Case("a1 b2 c3 b4", 'begin("a").next("b")', "(a1 b2)", strict(SEQUENCE), "(a1 b2)"),
    Case("a1 c2 b3 b4", 'begin("a").followedBy("b")', "(a1 b3)", next_match(SEQUENCE), "(a1 b3)"),
    Case("a1 c2 b3 b4", 'begin("a").followedByAny("b")', "(a1 b3) (a1 b4)", any_match(SEQUENCE), "(a1 b3) (a1 b4)"),
    # Windows.
    Case(
        "a1 b10 b11",
        'begin("a").followedByAny("b").within(Duration.ofMillis(10))',
        "(a1 b10)",
        "PATTERN SEQ(A a, B b) WITHIN 10",
        "(a1 b10)",
    ),
    # Repetition.
    Case(
        "a1 a2 b3",
        'begin("a").oneOrMore().followedBy("b")',
        "(a1 a2 b3) (a1 b3) (a2 b3)",
        next_match(REPEATED),
        "(a1 a2 b3) (a2 b3)",
    ),
    Case(
        "a1 a2 b3",
        'begin("a").oneOrMore().greedy().followedBy("b")',
        "(a1 a2 b3) (a2 b3)",
        next_match(REPEATED),
        "(a1 a2 b3) (a2 b3)",
    ),
    Case(
        "a1 b2 b3",
        'begin("a").oneOrMore().greedy().followedBy("b")',
        "(a1 b2)",
        next_match(REPEATED),
        "(a1 b2) (a1 b3)",
    ),
    Case(
        "a1 b2 a3 c4 b5 b6",
        'begin("a").oneOrMore().greedy().followedByAny("b")',
        "(a1 b2) (a1 a3 b5) (a3 b5) (a1 a3 b6) (a3 b6)",
        next_match(REPEATED),
        "(a1 b2) (a1 a3 b5) (a3 b5) (a1 a3 b6) (a3 b6)",
    ),
    Case(
        "a1 x2 b3",
        'begin("a").where(is("AX")).oneOrMore().greedy().followedByAny("b").where(is("BX"))',
        "(a1 x2 b3) (x2 b3)",
        next_match("SEQ(ANY(A, X)+ a[], ANY(B, X) b)"),
        "(a1 x2) (a1 x2 b3) (x2 b3)",
    ),
    Case(
        "a1 a2 a3 b4",
        'begin("a").oneOrMore().allowCombinations().followedByAny("b")',
        "(a1 a2 a3 b4) (a1 a2 b4) (a1 a3 b4) (a1 b4) (a2 a3 b4) (a2 b4) (a3 b4)",
        any_match(REPEATED),
        "(a1 a2 a3 b4) (a1 a2 b4) (a1 a3 b4) (a1 b4) (a2 a3 b4) (a2 b4) (a3 b4)",
    ),
    Case(
        "s1 a2 a3 a4 b5",
        'begin("s").followedByAny("a").oneOrMore().followedByAny("b")',
        "(s1 a2 a3 a4 b5) (s1 a2 a3 b5) (s1 a2 b5) (s1 a3 a4 b5) (s1 a3 b5) (s1 a4 b5)",
        any_match("SEQ(S s, A+ a[], B b)"),
        "(s1 a2 a3 a4 b5) (s1 a2 a3 b5) (s1 a2 a4 b5) (s1 a2 b5) (s1 a3 a4 b5) (s1 a3 b5) (s1 a4 b5)",
    ),
    Case(
        "s1 a2 c3 a4 b5",
        'begin("s").next("a").oneOrMore().next("b")',
        "(s1 a2 a4 b5)",
        strict("SEQ(S s, A+ a[], B b)"),
        "",
    ),
    Case(
        "s1 a2 a3 b4 a5 c6 b7",
        'begin("s").next("a").oneOrMore().consecutive().next("b")',
        "(s1 a2 a3 b4)",
        strict("SEQ(S s, A+ a[], B b)"),
        "(s1 a2 a3 b4)",
    ),
    # Events of one moment.
    Case("a1 b1 b2", 'begin("a").followedBy("b")', "(a1 b1)", next_match(SEQUENCE), "(a1 b2)"),
    Case("b1 a1 b2", 'begin("a").followedBy("b")', "(a1 b2)", next_match(SEQUENCE), "(a1 b2)"),
    Case("c1 a1 b2", 'begin("a").next("b")', "(a1 b2)", strict(SEQUENCE), ""),
    # Negation.
    Case(
        "a1 b2 c3 a4 b5",
        'begin("a").notFollowedBy("c").followedByAny("b")',
        "(a1 b2) (a4 b5)",
        any_match("SEQ(A a, !(C c), B b)"),
        "(a1 b2) (a4 b5)",
    ),
    Case(
        "a1 c2 a3 b4",
        'begin("a").oneOrMore().greedy().notFollowedBy("c").followedBy("b")',
        "(a3 b4)",
        next_match("SEQ(A+ a[], !(C c), B b)"),
        "(a1 a3 b4) (a3 b4)",
    ),
    Case(
        "a1 c2 a3 x4 c5 b6",
        'begin("a").notNext("c").followedBy("b")',
        "(a3 b6)",
        next_match("SEQ(A a, !(C c), B b)"),
        "",
    ),
    Case(
        "a1 c5 a6 c16",
        'begin("a").notFollowedBy("c").within(Duration.ofMillis(10))',
        "(a6)",
        "PATTERN SEQ(A a, !(C c)) WITHIN 10",
        "(a6)",
    ),
    # Which of the matches are given.
    Case(
        "a1=1 a2=2 b3=2 b4=1",
        'begin("a", skipPastLastEvent()).followedBy("b").where(likeA("B"))',
        "(a1 b4)",
        next_match(SEQUENCE, "a.value = b.value") + " OUTPUT NON_OVERLAPPING",
        "(a2 b3)",
    ),
    Case(
        "a1 a2 b3 b4 a5 b6",
        'begin("a", skipPastLastEvent()).oneOrMore().greedy().followedByAny("b")',
        "(a1 a2 b3) (a5 b6)",
        next_match(REPEATED) + " OUTPUT NON_OVERLAPPING",
        "(a1 a2 b3) (a5 b6)",
    ),
    Case(
        "a1 a2 b3 b4 a5 b6",
        'begin("a", skipToNext()).oneOrMore().greedy().followedByAny("b")',
        "(a1 a2 b3) (a2 b3) (a5 b6)",
        next_match(REPEATED) + " OUTPUT FIRST",
        "(a1 a2 b3) (a2 b3) (a5 b6)",
    ),
    # A window between neighbours.
    Case(
        "a1 b10 a20 b30",
        f'begin("a").followedBy("b").{ONLY_NEIGHBOURS}',
        "(a1 b10)",
        next_match(SEQUENCE, "b.time - a.time < 10"),
        "(a1 b10)",
    ),
    Case(
        "a1 b50 c51",
        f'begin("a").followedBy("b").followedBy("c").{ONLY_NEIGHBOURS}',
        "(a1 b50 c51)",
        next_match("SEQ(A a, B b, C c)", "b.time - a.time < 10 AND c.time - b.time < 10"),
        "",
    ),
    Case(
        "a1 b50 c51",
        f'begin("a").followedBy("b").{ONLY_NEIGHBOURS}.followedBy("c").{ONLY_NEIGHBOURS}',
        "",
        next_match("SEQ(A a, B b, C c)", "b.time - a.time < 10 AND c.time - b.time < 10"),
        "",
    ),
    # The question of the page that compares languages.
    Case("f1 f2 f3 f4 s5", FLINK_ATTACK, "(f1 f2 f3 f4 s5) (f2 f3 f4 s5)", ATTACK, "(f1 f2 f3 f4 s5) (f2 f3 f4 s5)"),
    Case("f1 f2 f3 r4 s5", FLINK_ATTACK, "", ATTACK, ""),
    Case("f1 r2 f3 f4 s5", FLINK_ATTACK, "", ATTACK, "(f1 f3 f4 s5)"),
)

# Whatever a step is called, it takes events of that type.
STEP = re.compile(r'\b(begin|next|followedBy|followedByAny|notNext|notFollowedBy)\("(\w)"(, \w+\(\))?\)(?!\.where)')
PATTERNS = """
import static org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy.*;

import java.time.Duration;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;

class Patterns extends FlinkStreams {
    static Pattern<Event, ?> of(int number) {
        switch (number) {
%s
            default: throw new IllegalArgumentException();
        }
    }
}
"""


def in_java(pattern: str) -> str:
    """A case's pattern as Java has it.

    >>> in_java('begin("a").next("b").within(Duration.ofMillis(10))')
    'Pattern.<Event>begin("a").where(is("A")).next("b").where(is("B")).within(Duration.ofMillis(10))'
    """
    spelt = STEP.sub(lambda step: f'{step[0]}.where(is("{step[2].upper()}"))', pattern)
    return f"Pattern.<Event>{spelt}"


def flink_answers() -> list[str]:
    lines = [f"            case {number}: return {in_java(case.pattern)};" for number, case in enumerate(CASES)]
    with flink_java.program("FlinkStreams", more={"Patterns.java": PATTERNS % "\n".join(lines)}) as flink:
        return [flink.ask(case.stream) for case in CASES]


def ouzel_answer(case: Case) -> str:
    """Ouzel's matches in the notation of the cases."""
    rows = answer(case.query, events_of(case.stream)).to_pylist()
    matches = []
    for row in rows:
        bound = [value for name, value in row.items() if name not in ("start", "end")]
        events = [event for one in bound for event in (one if isinstance(one, list) else [one])]
        words = [f"{event['type'].lower()}{event['ts']}" for event in events]
        matches.append(f"({' '.join(words)})")
    return " ".join(matches)


def events_of(stream: str) -> pa.Table:
    """
    >>> events_of("a1 b2=7").to_pylist()
    [{'type': 'A', 'ts': 1, 'value': 0}, {'type': 'B', 'ts': 2, 'value': 7}]
    """
    words = [re.fullmatch(r"(\w)(\d+)(?:=(\d+))?", word) for word in stream.split()]
    events = [{"type": word[1].upper(), "ts": int(word[2]), "value": int(word[3] or 0)} for word in words if word]
    return pa.Table.from_pylist(events)


def matches_of(text: str) -> list[str]:
    """The single matches, in an order that does not depend on when each was found.

    >>> matches_of("(a2 b3) (a1 b3)")
    ['(a1 b3)', '(a2 b3)']
    """
    return sorted(re.findall(r"\([^)]*\)", text))


def checked() -> tuple[list[str], list[list[str]]]:
    """Both answers of every case, which must be those that the case has."""
    rows = []
    for case, flink in zip(CASES, flink_answers(), strict=True):
        ouzel = ouzel_answer(case)
        assert matches_of(flink) == matches_of(case.flink), f"{case.stream}, {case.pattern}: Flink finds {flink}"
        assert matches_of(ouzel) == matches_of(case.ouzel), f"{case.stream}, {case.query}: Ouzel finds {ouzel}"
        finds = [" ".join(matches_of(text)) or "nothing" for text in (flink, ouzel)]
        rows.append([case.stream, f"`{case.pattern}`", finds[0], f"`{case.query}`", finds[1]])
    return HEADINGS, rows

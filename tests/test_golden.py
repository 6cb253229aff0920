"""Every golden case on every way of running, and the format that they are written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from ouzel.engines.aggregate.plan import NAMES
from ouzel.engines.kleene.plan import RunKernel
from ouzel.errors import QueryError
from ouzel.plan.choose import all_rules
from tests.golden.answers import Answer, disagreement
from tests.golden.embedded import Embedded, InSet, OneByOne, explained, rules_that_act
from tests.golden.fill import Disputed, fill_file, filled
from tests.golden.format import FOLDER, Block, Case, CaseError, read_all, read_file, read_text
from tests.golden.ways import Binder, Oracle, Way, all_ways

pytestmark = pytest.mark.quick

CASES = read_all()
WAYS = all_ways()
EXPLAINED_MIN = 60
CASES_MIN = 150  # a guard against files that are no longer found


GAPS = {(way.name, case.identity): way.gap(case) for way in WAYS for case in CASES}


def _runs() -> Iterator[ParameterSet]:
    for way in WAYS:
        for case in CASES:
            if GAPS[way.name, case.identity] is None:
                yield pytest.param(case, way, marks=[pytest.mark.thorough] if _is_thorough(case, way) else [])


def _is_thorough(case: Case, way: Way) -> bool:
    """Whether another way does most of what this one does."""
    covered = isinstance(way, Binder) and case.expected_error is None
    return covered or isinstance(way, InSet) or (type(way) is OneByOne and not way.restored)


def _identity(value: object) -> str:
    return value.identity if isinstance(value, Case) else getattr(value, "name", str(value))


@pytest.mark.parametrize(("case", "way"), list(_runs()), ids=_identity)
def test_case(case: Case, way: Way) -> None:
    if case.expected_error is not None:
        with pytest.raises(QueryError) as raised:
            way.run(case)
        assert str(raised.value) == case.expected_error
        return
    answers = way.run(case)
    if answers is not None:
        found = disagreement(case, answers)
        assert found is None, f"{case.file}.case, line {case.line_number}, {way.name}: {found}"


@pytest.mark.thorough
@pytest.mark.parametrize("case", [case for case in CASES if case.expected_error is None], ids=_identity)
def test_each_rule_off_alone(case: Case) -> None:
    for rule in rules_that_act(case):
        found = disagreement(case, Embedded(rules_off=[rule]).run(case))
        assert found is None, f"{case.file}.case, line {case.line_number}, without {rule}: {found}"


EXPLAINED = [(case, block) for case in CASES for block in case.explanations]


@pytest.mark.parametrize(("case", "block"), EXPLAINED, ids=lambda value: getattr(value, "identity", None))
def test_explain(case: Case, block: Block) -> None:
    assert list(block.body) == explained(case, block.of)


def test_explain_blocks_cover_every_file_kernel_and_rule() -> None:
    assert len({case.identity for case, _ in EXPLAINED}) >= EXPLAINED_MIN
    assert {case.file for case, _ in EXPLAINED} == {case.file for case in CASES if case.expected_error is None}
    lines = [line.partition(" ") for _, block in EXPLAINED for line in block.body]
    engines = {text for what, _, text in lines if what == "engine"}
    kernels = {text for what, _, text in lines if what == "kernel"}
    rules = {rule for what, _, text in lines if what == "rules" for rule in text.split() if rule != "(none)"}
    assert engines == {"automata", "sequence", "kleene", "readings", "aggregate", "incomplete", "rows"}
    assert kernels >= {"stacks", *(kernel.value for kernel in RunKernel), "arrivals", *NAMES.values()}
    assert rules == {rule.name for rule in all_rules()}


def test_every_case_runs_somewhere_or_is_declared(capsys: pytest.CaptureFixture[str]) -> None:
    """Gaps are counted by way and reason, and printed; none is silent."""
    gaps = Counter((way, reason) for (way, _), reason in GAPS.items() if reason is not None)
    with capsys.disabled():
        print(f"\ngolden: {len(CASES)} cases in {len({case.file for case in CASES})} files")
        for (way, reason), count in sorted(gaps.items(), key=str):
            print(f"golden: {way} leaves out {count}: {reason}")
    assert len(CASES) >= CASES_MIN


# ── The format ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.case")), ids=lambda path: path.stem)
def test_a_file_read_and_written_is_the_same_file(path: Path) -> None:
    assert read_file(path).write() == path.read_text(encoding="utf-8")


EXAMPLE = """\
# Windows
=== equal to T does not match
query
  PATTERN SEQ(A a, B b) WITHIN 10
events
  event  type  time  x:double
  a1     A     1     -
  b10    B     10    'nan'   # the last one in time
  b11    B     11    2.5
# b11 stands at T.
matches
  ?

=== another
query
  PATTERN SEQ(A a) RETURN Out(a.x AS x, a.s AS s)
events
  event  type  time  x  s
  a1     A     1     4  'two words'
rows
  ?
"""


def example(text: str = EXAMPLE) -> tuple[Case, ...]:
    return read_text(text, Path("example.case")).cases


def test_cells_have_types_nulls_and_quotes() -> None:
    rows = example()[0].inputs[None].to_pylist()
    assert [row["time"] for row in rows] == [1, 10, 11]
    assert rows[0]["x"] is None and rows[1]["x"] != rows[1]["x"] and rows[2]["x"] == 2.5
    assert example()[1].inputs[None].to_pylist()[0]["s"] == "two words"


def test_fill_writes_answers_and_leaves_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "example.case"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert fill_file(path) == (2, [])
    first, rest = EXAMPLE.replace("  ?\n", "  a=a1 b=b10\n", 1), "  start  end  x  s\n  1      1    4  'two words'\n"
    assert path.read_text(encoding="utf-8") == first.replace("  ?\n", rest)
    assert fill_file(path) == (0, [])


class Wrong(Oracle):
    """A way of running that loses every match."""

    name = "wrong"

    def run(self, case: Case) -> dict[str | None, Answer]:
        return {None: Answer.of_rows([])}


class Outsider:
    """The wrong way, not taken for the oracle."""

    name = "wrong"
    gap = Wrong.gap
    run = Wrong.run


def test_fill_refuses_an_answer_that_the_oracle_disputes() -> None:
    with pytest.raises(Disputed, match="the oracle disputes the answer of wrong"):
        filled(example()[0], (Oracle(), Outsider()))


def test_a_wrong_answer_is_told_in_words() -> None:
    case = filled(example()[0])
    wrong = {"start": 1, "end": 11, "a": {"event": "a1"}, "b": {"event": "b11"}}
    told = disagreement(case, {None: Answer.of_rows([wrong])})
    assert told == "the answers differ\n  expected, not found: a=a1 b=b10\n  found, not expected: a=a1 b=b11"


def test_a_number_of_another_type_is_a_wrong_answer() -> None:
    case = example(EXAMPLE.removesuffix("?\n") + "x  s\n  4  'two words'\n")[1]
    assert disagreement(case, {None: Answer.of_rows([{"x": 4, "s": "two words"}])}) is None
    assert disagreement(case, {None: Answer.of_rows([{"x": 4.0, "s": "two words"}])})
    assert disagreement(case, {None: Answer.of_rows([{"x": 4, "s": "two words"}] * 2)})


def test_an_unanswered_case_fails() -> None:
    case = example()[0]
    assert "still waits for an answer" in str(disagreement(case, {None: Answer.of_rows([])}))
    assert filled(replace(case, blocks=case.blocks[:-1])).expectations == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("=== a\nquery\n  PATTERN SEQ(A a)\n", "expects nothing"),
        ("=== a\nmatches\n  ?\n", "needs one query"),
        ("=== a\nquery\n  x\nmatchs\n  ?\n", "opens no block"),
        ("=== a\nquery\n  x\noptions\n  tme: x\nmatches\n  ?\n", "unknown option"),
        ("=== a\nquery\n  x\nmatches\n  ?\nmatches\n  ?\n", "two blocks"),
        ("=== a\nquery\n  x\nmatches\n  ?\nerror\n  ?\n", "an error and an answer"),
        ("=== a\nquery\n  x\nmatches\n  ?\n=== a\nquery\n  x\nmatches\n  ?\n", "two cases are named"),
    ],
)
def test_mistakes_in_a_file_are_errors(text: str, reason: str) -> None:
    with pytest.raises(CaseError, match=reason):
        read_text(text, Path("example.case"))

"""Without Flink: what stands beside it is right, and a run that lacks it says so."""

from __future__ import annotations

import pytest

from benchmarks import flink_cep, flink_java, flink_small
from benchmarks.kleene_worlds import answer


@pytest.mark.parametrize("case", flink_small.CASES, ids=lambda case: f"{case.stream}, {case.pattern}")
def test_ouzel_answers_small_streams_as_the_page_says(case: flink_small.Case) -> None:
    assert flink_small.matches_of(flink_small.ouzel_answer(case)) == flink_small.matches_of(case.ouzel)


def test_a_run_without_flink_tells_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flink_java, "jars", list)
    flink_cep.main(["--quick"])
    assert capsys.readouterr().out == "SKIPPED: apache-flink-libraries is not installed: pip install 'ouzel[flink]'\n"


def test_a_run_without_a_compiler_tells_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_java, "jars", lambda: ["flink-cep.jar"])
    monkeypatch.setattr(flink_java.shutil, "which", lambda name: None if name == "javac" else f"/bin/{name}")
    reason = flink_java.missing()
    assert reason is not None and "javac" in reason


def test_the_digest_counts_every_event_of_every_match() -> None:
    found = answer(flink_small.any_match("SEQ(A+ a[], B b)"), flink_small.events_of("a1 a2 b3"))
    # (a1 b3), (a2 b3), (a1 a2 b3)
    assert flink_cep.digest(found) == flink_cep.Digest(matches=3, events=7, times=4 + 5 + 6, starts=4, ends=9)


def test_flink_reads_the_numbers_that_ouzel_reads() -> None:
    sequence, contiguous = flink_cep.QUESTIONS[:2]
    events = sequence.table().slice(0, 50)
    numbers = flink_cep.as_numbers(events)
    assert [f"E{kind}" for kind in numbers[:, 0]] == events.column("type").to_pylist()
    assert numbers[:, 2].tolist() == events.column("attr1").to_pylist()
    prices = contiguous.table().slice(0, 50)
    assert flink_cep.as_numbers(prices)[:, 1:].tolist() == [
        [row["ts"], row["symbol"], row["price"], row["volume"]] for row in prices.to_pylist()
    ]

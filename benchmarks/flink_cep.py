"""Flink CEP and Ouzel, one core each: sequences, and Kleene closure with the prices of SASE+.

    python -m benchmarks.flink_cep [--quick] [--only sequence contiguous …] [--page]

Needs apache-flink-libraries (the extra `flink`) and a Java development kit; says so and does nothing where they are
missing. Both read the same events. Where a question means the same to both, the answers must be equal: the number of
matches, of events in them, and the sums of their times. Prints a table, then JSON; `--page` writes
benchmarks/results/flink-cep.md.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import flink_java, flink_small
from benchmarks.kleene_worlds import answer, stock_events, template
from benchmarks.measure import Bar, cpu_seconds, markdown
from benchmarks.report import RESULTS, Part, Report, verdict, write_json
from benchmarks.sase_worlds import W1, WINDOW, events_for

IDS = 100
# A machine that runs Java compiles it while it runs; after two jobs it is nearly through with that.
WARM_UP_JOBS = 2
HEADINGS = [
    "question",
    "window",
    "events",
    "Flink's matches",
    "Ouzel's",
    "Flink, s of CPU",
    "Ouzel",
    "Flink's over Ouzel's",
]


@dataclass(frozen=True, slots=True)
class Question:
    """One question in both languages; `pattern` names it in FlinkCep.java."""

    name: str
    pattern: str
    about: str
    window: int
    events: int
    text: str
    alike: bool = True

    def table(self) -> pa.Table:
        return events_for(self.events, IDS) if self.pattern == "sequence" else stock_events(self.events)


@dataclass(frozen=True, slots=True)
class Digest:
    """What must be equal where two answers are."""

    matches: int
    events: int
    times: int
    starts: int
    ends: int


def rising(name: str, window: int, more: str = "") -> str:
    """A query of SASE+'s template, its window in time."""
    return template(name, window).replace(" EVENTS", "").replace("b.volume < 150 ", f"b.volume < 150 {more}")


FALLING = "AND b.price < a[a.LEN].price "
QUESTIONS = (
    Question("sequence", "sequence", "SEQ(a, b, c), any match", WINDOW, 400_000, W1.format(window=WINDOW)),
    Question("contiguous", "contiguous", "rising prices, contiguous", 1_000, 3_000_000, rising("p2s2", 1_000)),
    Question("greedy-200", "greedy", "rising, then a fall, next match", 200, 600_000, rising("p2s3", 200, FALLING)),
    Question("greedy-1000", "greedy", "rising, then a fall, next match", 1_000, 25_000, rising("p2s3", 1_000, FALLING)),
    Question("relaxed", "relaxed", "rising, oneOrMore as it is", 1_000, 25_000, rising("p2s3", 1_000), alike=False),
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events, one run")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", nargs="*", choices=[*(one.name for one in QUESTIONS), "small"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/flink-cep.md")
    asked = parser.parse_args(arguments)
    reason = flink_java.missing()
    if reason is not None:
        print(f"SKIPPED: {reason}")
        return
    runs = asked.runs or (1 if asked.quick else 3)
    pa.set_cpu_count(1)
    questions = [
        replace(one, events=one.events // 10) if asked.quick else one
        for one in QUESTIONS
        if not asked.only or one.name in asked.only
    ]
    parts = measured(questions, runs, small=not asked.only or "small" in asked.only)
    write_json("flink_cep", max((one.events for one in questions), default=0), runs, parts, asked.json)
    if asked.page:
        write_page(RESULTS / "flink-cep.md", runs, parts)


def measured(questions: list[Question], runs: int, *, small: bool) -> list[Part]:
    report = Report(None)
    if questions:
        report.add("Side by side", SIDE_BY_SIDE, lambda: compared(questions, runs))
    if small:
        report.add("Small streams in both", flink_small.NOTE, lambda: (flink_small.checked(), []))
    return report.parts


def compared(questions: list[Question], runs: int) -> tuple[tuple[list[str], list[list[str]]], list[Bar]]:
    rows, bars = [], []
    for question in questions:
        table = question.table()
        flink, flink_seconds, ouzel, ouzel_seconds = both(question, table, runs)
        if question.alike:
            assert flink == ouzel, f"{question.name}: Flink has {flink}, Ouzel {ouzel}"
        ratio = flink_seconds / ouzel_seconds
        counts = (question.window, question.events, flink.matches, ouzel.matches)
        times = (f"{flink_seconds:.1f}", f"{ouzel_seconds:.3f}", f"{ratio:,.0f}")
        rows.append([question.about, *(f"{count:,}" for count in counts), *times])
        if question.alike:
            name = f"{question.about}, W = {question.window:,}: Flink's CPU time over Ouzel's, equal answers"
            bars.append(Bar(name, ratio, 1.0, at_least=True))
        print(markdown(HEADINGS, rows[-1:]), flush=True)
    return (HEADINGS, rows), bars


def both(question: Question, table: pa.Table, runs: int) -> tuple[Digest, float, Digest, float]:
    """Both answers, each with the median of its seconds of CPU; the runs alternate."""
    ask: Callable[[], pa.Table] = lambda: answer(question.text, table)  # noqa: E731
    ouzel = digest(ask())
    seconds: tuple[list[float], list[float]] = ([], [])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "events"
        as_numbers(table).tofile(file)
        with flink_java.program("FlinkCep", str(file)) as flink:
            line = f"{question.pattern} {question.window}"
            for _ in range(WARM_UP_JOBS):
                flink.ask(line)
            for _ in range(runs):
                found, taken = read_answer(flink.ask(line))
                seconds[0].append(taken)
                seconds[1].append(cpu_seconds(ask))
    return found, statistics.median(seconds[0]), ouzel, statistics.median(seconds[1])


def read_answer(line: str) -> tuple[Digest, float]:
    """A line of FlinkCep.java: what it found, and its seconds of CPU.

    >>> read_answer("2 6 21 3 11 1500000000")
    (Digest(matches=2, events=6, times=21, starts=3, ends=11), 1.5)
    """
    *found, nanoseconds = map(int, line.split())
    return Digest(*found), nanoseconds / 1e9


def as_numbers(table: pa.Table) -> np.ndarray:
    """Five numbers for each event: kind, time, key, price, volume; what a stream does not have is 0."""
    kinds = table.column("type").combine_chunks().dictionary_encode()
    numbers = np.array([int(name[1:]) if name[1:].isdigit() else 0 for name in kinds.dictionary.to_pylist()])
    columns = [numbers[kinds.indices.to_numpy()], table.column("ts").to_numpy()]
    for names in (("attr1", "symbol"), ("price",), ("volume",)):
        present = [table.column(name).to_numpy() for name in names if name in table.column_names]
        columns.append(present[0] if present else np.zeros(table.num_rows, np.int64))
    return np.stack(columns, axis=1).astype("<i8")


def digest(found: pa.Table) -> Digest:
    """Of Ouzel's matches: `start`, `end`, then a struct or a list of structs for each variable."""
    events = times = 0
    for name in found.column_names[2:]:
        bound = found.column(name).combine_chunks()
        if not pa.types.is_struct(bound.type):
            bound = bound.flatten()
        events += len(bound)
        times += int(np.sum(bound.field("ts").to_numpy()))
    sums = [pc.sum(found.column(name)).as_py() or 0 for name in ("start", "end")]
    return Digest(found.num_rows, events, times, *sums)


SIDE_BY_SIDE = (
    "Flink: a job on a cluster of one slot in one Java process, with heap state, no checkpoints, object reuse, "
    "no shuffle between source and pattern, and one thread for garbage collection. The events are objects in "
    "memory with integers as types, and the matches are counted and dropped. The time is the CPU time of that "
    "process from the submission of the job to its end, after two warm-up jobs over the same events. The job "
    "uses event time, because with processing time Flink would measure windows by the clock. Events that no "
    "step can use are filtered out before the pattern of the sequence. Ouzel: from an Arrow table with types as"
    " text to an Arrow table of complete matches.\n\n"
    "In all lines except the last the answers are equal. This is checked: the number of matches and of their "
    "events, the sums of their times, starts and ends. `followedByAny` is skip_till_any_match. "
    "`oneOrMore().consecutive().next` on a keyed stream is partition_contiguity. "
    "`oneOrMore().greedy().followedByAny` is skip_till_next_match if no event fits both steps; here a price "
    "cannot rise and fall at once. The last line is what a user would write first, `oneOrMore().followedBy`, "
    "and it means something else: Flink pairs every prefix of the repetition with the first b after it; Ouzel "
    "takes all events it can and pairs them with every later b within the window.\n\n"
    "Watermarks: one after each event. With Flink's periodic watermarks, every 200 ms, six jobs in a row over "
    "300,000 events of the second line took between 1.4 and 73 s; the reason was not examined. Watermarks after"
    " each event, after 100 events, after 10,000 and only at the end were each tried once on the first two "
    "lines. After the warm-up they differed little; one after 10,000 events took about a fifth less than one "
    "after each event.\n\n"
    "The ratios depend on the size of the stream: the second line had a ratio of 8 with a million events, and "
    "the first 245 to 294 in other runs. In Flink the condition on the previous price reads the whole "
    "repetition, because `getEventsForPattern` returns all of it; Ouzel keeps only the one value that it needs."
    " The share of this in Flink's time was not measured. This page also does not measure Flink's state on "
    "disk, checkpoints and many machines."
)


def write_page(path: Path, runs: int, parts: list[Part]) -> None:
    lines = [
        "# Flink CEP and Ouzel, measured",
        "",
        f"Written by `python -m benchmarks.flink_cep --page` with {flink_java.versions()}: one task of Flink, "
        f"one thread of Ouzel, medians of {runs} alternating runs, ratios of CPU time within one run. The "
        f"sequence reads SASE's stream (20 types, {IDS} ids). The prices are those of SASE+ (two symbols, up by "
        "one with probability 0.7, a run starts at a multiple of 500). Windows are in time, with one tick per "
        "event.",
        "",
        "## Bars",
        "",
        verdict(parts),
    ]
    for title, note, table, _ in parts:
        lines += ["", f"## {title}", "", note, "", markdown(*table)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

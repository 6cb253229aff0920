"""Ways of running golden cases on Spark: each as a batch, and all together in one stream, whole or restarted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import ouzel.spark
from ouzel.errors import InputError
from ouzel.runtime.layout import ticks_of, widen
from ouzel.runtime.program import make_program
from ouzel.spark.bucket import StreamJob
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock, QueryGroup, from_payload, to_payload
from ouzel.spark.schema import spark_schema
from ouzel.spark.tasks import bucket_processor
from ouzel.spark.versions import bucket_names, from_arrow, step_by_key
from ouzel.spark.worker import STEPPED
from tests.golden.answers import Answers
from tests.golden.embedded import Embedded, _windowed, answer_of, batches_of_one, options, prepared, stream_gap
from tests.golden.format import Case
from tests.spark.clocks import BATCH_MS, CaseClock
from tests.spark.streams import FileStream
from tests.spark.together import collect_together


def gap(case: Case) -> str | None:
    """Why a case cannot run on Spark: what keeps it from the embedded engine, or a type that Spark has not."""
    if reason := Embedded().gap(case):
        return reason
    if case.order == "arrival":
        return "Spark has no order of arrival"
    for table in case.inputs.values():
        for field in table.schema:
            if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
                return "Spark has no timestamps of nanoseconds"
            try:
                spark_schema(pa.schema([field]))
            except InputError as error:
                return str(error)
    return None


CASES_PER_JOB = 40


class SparkBatch:
    """`ouzel.spark.match` on the whole input of each case; the answers of many cases come back from one job."""

    name = "spark batch"

    def __init__(self, spark: SparkSession, cases: Sequence[Case]) -> None:
        self._spark = spark
        self._answers: dict[str, Answers | Exception] = {}
        runnable = [case for case in cases if self.gap(case) is None]
        for first in range(0, len(runnable), CASES_PER_JOB):
            together = runnable[first : first + CASES_PER_JOB]
            try:
                self._run(together)
            except Exception as failure:  # one case that fails takes the job with it; each test tells of it
                self._answers |= {case.identity: failure for case in together}

    def gap(self, case: Case) -> str | None:
        return gap(case)

    def run(self, case: Case) -> Answers:
        found = self._answers[case.identity]
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self, cases: Sequence[Case]) -> None:
        started = [(case, self._start(case)) for case in cases]
        frames = {f"{case.identity} {name}": frame for case, found in started for name, frame in found.items()}
        tables = collect_together(frames)
        for case, found in started:
            self._answers[case.identity] = {
                name: answer_of(case, name, tables[f"{case.identity} {name}"]) for name in found
            }
            found.release()

    def _start(self, case: Case) -> ouzel.spark.Matches:
        """The DataFrames of the answers, by the names of their queries."""
        frames = {name: from_arrow(self._spark, table).coalesce(1) for name, table in case.inputs.items()}
        if case.is_row_pattern:
            recognized = ouzel.spark.match_recognize(frames[None], case.text, params=case.params)
            return ouzel.spark.Matches({"query": recognized}, ())
        queries = prepared(case) if case.is_script else prepared(case)["query"]
        found = ouzel.spark.match(frames.get(None, frames), queries, **options(case))
        return found if case.is_script else ouzel.spark.Matches({"query": found}, ())


class SparkStream:
    """All cases in one stream: the k-th event of each is in micro-batch k, and each case is a bucket of its own.

    Cases count time each in their own way, so each has its own clock: after micro-batch k the watermark has reached the
    k-th event of every case, as the embedded engine's would event by event.
    """

    def __init__(self, spark: SparkSession, folder: Path, cases: Sequence[Case], *, restarted: bool) -> None:
        self.name = "spark streaming restarted" if restarted else "spark streaming"
        self._shares: list[QueryGroup] = []
        self._owners: list[tuple[Case, str]] = []  # of each query, by its number
        self._batches: list[list[tuple[int, bytes | None]]] = []  # in each micro-batch: (number of the group, payload)
        for case in cases:
            if self.gap(case) is None:
                self._add(case)
        self._job = StreamJob(
            tuple(self._shares), buckets=1, names=tuple(bucket_names(len(self._shares))), log_bytes_min=2_000
        )
        self._found: dict[str, dict[str, list[pa.Table]]] = {}
        self._failure: Exception | None = None
        try:
            with ouzel.spark.unwrap_errors():
                self._found = self._run_all(spark, folder, restarted)
        except Exception as failure:  # one case that fails takes the stream with it; each test tells of it
            self._failure = failure

    def gap(self, case: Case) -> str | None:
        if reason := stream_gap(case):
            return reason
        if not any(table.num_rows for table in case.inputs.values()):
            return gap(case) or "a stream without events has no micro-batches"
        return gap(case)

    def run(self, case: Case) -> Answers:
        if self._failure is not None:
            raise self._failure
        return {name: answer_of(case, name, tables) for name, tables in self._found[case.identity].items()}

    def _add(self, case: Case) -> None:
        tables = case.inputs
        schema = tables[None].schema if None in tables else {name: table.schema for name, table in tables.items()}
        queries = {name: _windowed(query) for name, query in prepared(case).items()}
        program = make_program(queries, schema, streaming=True, **options(case))
        events = [widen(one, program.layout) if isinstance(one, dict) else one for one in batches_of_one(case)]
        ticks = tuple(int(ticks_of(table, program.layout)[0]) for table in events)
        for part in plan_query_groups(program, Clock(1)):
            number = len(self._shares)
            self._shares.append(replace(part.group, first_query=len(self._owners), clock=CaseClock(ticks)))
            self._owners += [(case, name) for name in part.group.queries]
            for place, table in enumerate(events):
                while len(self._batches) <= place:
                    self._batches.append([])
                self._batches[place].append((number, to_payload(part.group.events(table))))

    def _run_all(self, spark: SparkSession, folder: Path, restarted: bool) -> dict[str, dict[str, list[pa.Table]]]:
        tables = list(self._tables())
        stream = FileStream(spark, folder, tables[0].schema)
        half = len(tables) // 2 if restarted else 0
        if restarted:
            stream.add(tables[:half])
            stream.run(self._step)
        stream.add(tables[half:])
        stream.run(self._step)
        found: dict[str, dict[str, list[pa.Table]]] = {}
        for case, name in self._owners:
            found.setdefault(case.identity, {})[name] = []
        for row in stream.answers():
            case, name = self._owners[row["query"]]
            found[case.identity][name].append(from_payload(row["payload"]))
        return found

    def _tables(self) -> Iterator[pa.Table]:
        """One for each micro-batch, and one more that moves time past the last event of every case."""
        for place, batch in enumerate([*self._batches, [(0, None)]]):
            mark = pa.scalar((place + 1) * BATCH_MS * 1000, pa.timestamp("us", "UTC"))
            yield pa.table(
                {
                    "mark": pa.repeat(mark, len(batch)),
                    "query": pa.array([self._job.names[number] for number, _ in batch], pa.int32()),
                    "payload": pa.array([payload for _, payload in batch], pa.binary()),
                }
            )

    def _step(self, rows: DataFrame) -> DataFrame:
        marked = rows.withWatermark("mark", "1 millisecond").where("mark IS NULL OR payload IS NOT NULL")
        stepped = step_by_key(marked.select("query", "payload"), bucket_processor(self._job), STEPPED, "eventTime")
        return stepped.where("payload IS NOT NULL").select("query", "payload")

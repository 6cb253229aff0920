"""`ouzel run --engine spark`: the files as DataFrames, and their answers as they would be here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import ouzel
from ouzel.cli.console import caution
from ouzel.cli.jobs import Job, Ran
from ouzel.cli.results import Results
from ouzel.cli.sources import Source
from ouzel.errors import InputError

READABLE = ("parquet", "csv", "json")
SETTINGS = {
    "spark.log.level": "ERROR",
    # Times without a zone stay without one, as they do here, and those with one are told in UTC.
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "UTC",
}


def on_spark(job: Job) -> Ran:
    """Answer by a Spark batch job, in order of time."""
    for source in job.sources:
        if source.kind not in READABLE:
            raise InputError(f"Spark cannot read '{source.path}'; give Parquet, CSV or JSON Lines")
    try:
        spark = ouzel.spark.session("ouzel run", **SETTINGS)
    except ModuleNotFoundError as error:
        raise InputError(f"--engine spark needs {error.name}: pip install 'ouzel[spark]'") from None
    try:
        return _answered(spark, job)
    finally:
        spark.stop()


def _answered(spark: Any, job: Job) -> Ran:
    queries, sources, options = job.queries, job.sources, job.options
    named = sorted({source.event_type for source in sources if source.event_type is not None})
    by_type = {name: _frame(spark, [one for one in sources if one.event_type == name]) for name in named}
    events: Any = by_type or _frame(spark, sources)
    with ouzel.spark.unwrap_errors(), ouzel.spark.match(events, queries, **options) as found:
        answers = {name: _in_order(found[name].toArrow()) for name in queries}
    with Results({name: answer.schema for name, answer in answers.items()}, job.output, job.format) as results:
        results.write(answers)
    if not job.quiet and not all(results.rows.values()):
        for name, reason in ouzel.spark.why_empty(events, queries, **options).items():
            if not results.rows[name]:
                caution(reason)
    if by_type:
        return Ran(sum(frame.count() for frame in by_type.values()), results)
    counted = "*" if options["type"] is None else "`" + options["type"].replace("`", "``") + "`"
    count, with_type = events.selectExpr("count(*)", f"count({counted})").first()
    return Ran(count, results, count - with_type)


def _frame(spark: Any, sources: list[Source]) -> Any:
    kinds = {source.kind for source in sources}
    if len(kinds) > 1:
        raise InputError(f"Spark reads files of one format at a time, not {' and '.join(sorted(kinds))}")
    reader = spark.read.format(kinds.pop()).option("header", True).option("inferSchema", True)
    return reader.option("inferTimestamp", True).load([str(source.path.absolute()) for source in sources])


def _in_order(answer: pa.Table) -> pa.Table:
    """As matches complete. An aggregate's row has no start."""
    keys = [name for name in ("end", "start") if name in answer.column_names]
    return answer.sort_by([(name, "ascending") for name in keys])

"""`state`: what a stream holds open, read from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ouzel.errors import InputError
from ouzel.runtime.program import load
from ouzel.sealing import SET_TERMS, is_sealed_as
from ouzel.spark.launch import session
from ouzel.spark.schema import spark_schema
from ouzel.spark.shipping import on_workers
from ouzel.spark.steps import CONTROL
from ouzel.spark.terms import Terms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state(checkpoint: str | Path, spark: SparkSession | None = None) -> DataFrame:
    """What a stream holds open, as a DataFrame: for each query and key the events, the oldest of them, and the bytes.

    `checkpoint` is the location that the stream was started with; it is read as of its last micro-batch, whether the
    stream runs or not. Columns: `query`; `key`, null for events that may join every key and for queries that do not
    keep keys apart; `open_events`; `oldest`, the time of the oldest of them; `state_bytes`, this key's part of what is
    stored; and for the bucket that the key lives in `bucket`, `bucket_runs` (runs and matches that wait for their end),
    `bucket_matches`, `bucket_late` and `bucket_dropped` (counted since the stream began). The matches of a total over
    all keys are made behind the buckets and not told here.

    >>> state("/checkpoints/thefts").orderBy("oldest").show()                                 # doctest: +SKIP
    """
    spark = spark or session()

    def variable(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("path", str(checkpoint)).option("operatorId", step)
        return reader.option("stateVarName", name).load()

    try:
        step = _step_of_buckets(spark, checkpoint)
        terms = variable("terms").select("key.query", F.col("value.saved").alias("terms"))
        first = terms.where(F.col("query") == CONTROL).head()
    except PySparkException as failure:
        raise InputError(
            f"'{checkpoint}' is not the checkpoint of a stream of matches that has run: {_first_line(failure)}"
        ) from None
    if first is None:
        raise InputError(f"'{checkpoint}' is a checkpoint in which no micro-batch has ended yet")
    if is_sealed_as(SET_TERMS, bytes(first["terms"])):
        raise InputError(
            f"'{checkpoint}' is the checkpoint of a set of queries, whose state is not told by key; "
            "ouzel.spark.Listener tells what it holds"
        )
    layout = load(Terms.load(bytes(first["terms"])).programs[0]).layout
    schema = state_schema(layout.schema.field(layout.time).type)
    heads = variable("head").select("key.query", F.col("value.saved").alias("head"))
    piece = F.struct(F.col("user_map_key.number").alias("number"), F.col("user_map_value.saved").alias("saved"))
    pieces = variable("pieces").groupBy(F.col("key.query").alias("query")).agg(F.collect_list(piece).alias("pieces"))
    stored = heads.where(F.col("query") != CONTROL).join(terms, "query").join(pieces, "query", "left")
    return stored.select("query", "head", "terms", "pieces").mapInArrow(
        on_workers("describe_buckets", schema.serialize().to_pybytes()), spark_schema(schema)
    )


def state_schema(time: pa.DataType) -> pa.Schema:
    """The columns of `state` where time is of a type."""
    return pa.schema(
        {
            "query": pa.string(),
            "key": pa.string(),
            "open_events": pa.int64(),
            "oldest": time,
            "state_bytes": pa.int64(),
            "bucket": pa.int32(),
            "bucket_runs": pa.int64(),
            "bucket_matches": pa.int64(),
            "bucket_late": pa.int64(),
            "bucket_dropped": pa.int64(),
        }
    )


def _step_of_buckets(spark: SparkSession, checkpoint: str | Path) -> int:
    """The number of the stateful step that keeps events; what adds up totals over all keys stands behind it."""
    steps = spark.read.format("state-metadata").load(str(checkpoint))
    keeping = steps.where(F.get_json_object("operatorProperties", "$.timeMode") == "EventTime")
    found = keeping.agg(F.max("operatorId")).first()
    return 0 if found is None or found[0] is None else int(found[0])


def _first_line(failure: PySparkException) -> str:
    return str(failure).strip().splitlines()[0]

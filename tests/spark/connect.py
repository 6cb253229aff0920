"""Golden cases over Spark Connect, with a server of its own: `python -m tests.spark.connect 1`, or every fourth with 4.

A process has either a Spark session of the plain kind or one of Connect, so this one is not that of the other tests.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

import ouzel.spark
from ouzel.errors import InputError
from tests.golden.answers import disagreement
from tests.golden.format import read_all
from tests.spark.ways import SparkBatch, gap

SETTINGS = {"spark.remote": "local[2]", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": 2}


def run_cases(spark: SparkSession, step: int) -> tuple[int, dict[str, str]]:
    """How many cases ran, and what was wrong with them, by case."""
    cases = [case for case in read_all() if gap(case) is None][::step]
    way = SparkBatch(spark, cases)
    problems = {case.identity: disagreement(case, way.run(case)) for case in cases}
    return len(cases), {name: problem for name, problem in problems.items() if problem}


def error_of_a_worker(spark: SparkSession) -> str:
    """What a user reads where an event has no time."""
    events = spark.createDataFrame([("A", None, 1)], "type string, ts long, id long")
    try:
        with ouzel.spark.unwrap_errors():
            ouzel.spark.match(events, "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 3").collect()
    except InputError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    session = ouzel.spark.session("golden over Connect", **SETTINGS)
    assert isinstance(session, ConnectSession)
    count, wrong = run_cases(session, int(sys.argv[1]))
    print(json.dumps({"cases": count, "wrong": wrong, "error": error_of_a_worker(session)}))
    session.stop()

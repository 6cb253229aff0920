"""A driver of its own process, to be killed: runs the stream in a folder until all its files are read.

    python -m tests.spark.driver FOLDER [SETTINGS] [CONDITION]

It prints `ready` when Spark has started, `committed` after each micro-batch, and at its end `right`, what is wrong, or
the error of the stream. SETTINGS is a JSON object of Spark's settings, with the master. CONDITION filters the source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

import ouzel.spark
from tests.spark.faulty import Faulty

# A process that lives for seconds spends half of them in the optimizing compiler of Java.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.master": "local[2]",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}


class Commits(StreamingQueryListener):
    """Prints a line after each micro-batch."""

    def onQueryProgress(self, event: Any) -> None:
        print("committed", flush=True)

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def main() -> None:
    folder = Path(sys.argv[1])
    settings = SETTINGS | (json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    condition = sys.argv[3] if len(sys.argv) > 3 else "true"
    spark = ouzel.spark.session("driver", **settings)
    faulty = Faulty.read(folder)
    stream = faulty.stream(spark, folder)
    step = faulty.step()
    spark.streams.addListener(Commits())
    print("ready", flush=True)
    try:
        with ouzel.spark.unwrap_errors():
            stream.run(lambda events: step(events.where(condition)))
    except Exception as error:
        # Spark's own errors begin with the ids of the query.
        said = str(error).rpartition("terminated with exception: ")[2]
        print(f"{type(error).__name__}: {said}".replace("\n", " ")[:2000], flush=True)
        sys.exit(1)
    print("; ".join(faulty.differences(stream)) or "right", flush=True)


if __name__ == "__main__":
    main()

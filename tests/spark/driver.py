"""A driver of its own process, to be killed: runs the stream in a folder until all its files are read.

python -m tests.spark.driver FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

import ouzel.spark
from tests.spark.faulty import step
from tests.spark.streams import FileStream


def main() -> None:
    folder = Path(sys.argv[1])
    spark = ouzel.spark.session("driver", "local[2]", **{"spark.log.level": "OFF", "spark.sql.shuffle.partitions": 2})
    stream = FileStream(spark, folder, pq.read_schema(folder / "schema.parquet"))
    print("ready", flush=True)
    stream.run(step)
    print("done", flush=True)


if __name__ == "__main__":
    main()

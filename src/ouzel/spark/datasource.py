"""The seeded generators as a Spark data source: `spark.read.format("ouzel.rfid")`, and `spark.readStream` likewise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from ouzel.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FIRST_DAY = date(2024, 5, 1)
OPTIONS = {"days": 1, "events": 100_000, "seed": 0}


class RfidDataSource(DataSource):
    """Days in a shop (`ouzel.datasets.shop_day`), one partition each; a stream gives a day with each micro-batch.

    Options: `days`, `events` of each day, `seed` of the first. Register it with `ouzel.spark.register(spark)`.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ouzel.rfid"

    def schema(self) -> StructType:
        """The columns of the readings."""
        from ouzel.spark.schema import spark_schema

        return spark_schema(_day(0, events=1_000, seed=0).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """All days at once."""
        return _Reader(_numbers(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Day after day."""
        return _StreamReader(_numbers(self.options))


class _Days:
    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        table = _day(partition.value, events=self.numbers["events"], seed=self.numbers["seed"])
        yield from table.to_batches()


class _Reader(_Days, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(day) for day in range(self.numbers["days"])]


class _StreamReader(_Days, DataSourceStreamReader):
    """An offset is the number of days that have passed."""

    def __init__(self, numbers: dict[str, int]) -> None:
        super().__init__(numbers)
        self._passed = 0

    def initialOffset(self) -> dict[str, int]:
        return {"day": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        self._passed = min(self._passed + 1, self.numbers["days"])
        return {"day": self._passed}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        # After a restart Spark goes on from its checkpoint, and days that have passed do not come again.
        self._passed = max(self._passed, end["day"])
        return [InputPartition(day) for day in range(start["day"], end["day"])]

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept that could be let go: every day can be made again from its seed."""


def _numbers(options: Mapping[str, str]) -> dict[str, int]:
    numbers = dict(OPTIONS)
    for name, value in options.items():
        if name in OPTIONS:
            try:
                numbers[name] = int(value)
            except ValueError:
                raise InputError(f"the option {name} of ouzel.rfid is a number, not '{value}'") from None
    return numbers


def _day(number: int, *, events: int, seed: int) -> pa.Table:
    import ouzel

    day = FIRST_DAY + timedelta(days=number)
    table = ouzel.datasets.shop_day(events, seed=seed + number, date=day.isoformat()).events
    # Spark's watermarks need moments with a zone.
    return table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))

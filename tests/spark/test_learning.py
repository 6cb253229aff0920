"""Loss models from DataFrames: those that the same events in one table give."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ouzel import InputError, LossModel, ModelWarning
from tests.loss.test_learning import STAGES, WINDOW, WITH_NEGATIVE, query_of
from tests.loss.test_posterior import sampled
from tests.spark.test_batch import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def assert_same(found: Any, wanted: Any) -> None:
    """The same data, with numbers equal to 1e-9 of their size."""
    if isinstance(wanted, Mapping):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert_same(found[key], value)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    else:
        assert found == wanted


def test_a_model_of_a_dataframe_is_that_of_its_table(spark: SparkSession) -> None:
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 200, 5)
    given: dict[str, Any] = {"loss": 0.15, "family": "gamma"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        wanted = LossModel.fit(events, query_of(WITH_NEGATIVE), **given)
        found = LossModel.fit(frame(spark, events, 5), query_of(WITH_NEGATIVE), **given)
    assert_same(json.loads(found.to_json()), json.loads(wanted.to_json()))
    reports = [wanted.report(source, query_of(WITH_NEGATIVE)).to_dict() for source in (frame(spark, events, 5), events)]
    assert_same(*reports)


def test_a_dataframe_for_each_type(spark: SparkSession) -> None:
    events, _ = sampled(STAGES, WINDOW, 60, 5)
    stamped = events.set_column(0, "ts", events["ts"].cast(pa.timestamp("us")))
    query = query_of(STAGES).replace("WITHIN 60000", "WITHIN 60 ms")
    tables = {kind: stamped.filter(pc.equal(events["type"], kind)).drop_columns("type") for kind in "ABC"}
    frames = {kind: frame(spark, table) for kind, table in tables.items()}
    model = LossModel.fit(events, query_of(STAGES), loss=0.2, family="gamma")
    reports = [model.report(source, query).to_dict() for source in (frames, tables)]
    assert reports[0]["last_events"] == 60
    assert_same(*reports)


def test_dataframes_that_cannot_be_learnt_from(spark: SparkSession) -> None:
    events, _ = sampled(STAGES, WINDOW, 5, 5)
    with pytest.raises(InputError, match="no event fits the last component"):
        LossModel.fit(frame(spark, events), query_of(STAGES).replace("C C", "D C"), loss=0.2)
    stream = spark.readStream.format("rate").load().selectExpr("value AS ts", "'A' AS type", "value AS id")
    with pytest.raises(InputError, match="a stream, which has no end"):
        LossModel.fit(stream, query_of(STAGES), loss=0.2)

"""The streams of SASE+, A-Seq, CESAR and AYAC: seeded, and with the distributions that the papers give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel import datasets
from ouzel.errors import InputError

STREAMS: dict[str, Callable[..., pa.Table]] = {
    "stock_ticks": datasets.stock_ticks,
    "stock_trades": datasets.stock_trades,
    "technical_events": datasets.technical_events,
    "lossy_shop": lambda count, seed: datasets.lossy_shop(count, seed=seed).events,
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_seed_gives_one_stream(name: str) -> None:
    make = STREAMS[name]
    assert make(500, seed=1).equals(make(500, seed=1))
    assert not make(500, seed=1).equals(make(500, seed=2))


def test_prices_walk_by_one_within_their_range() -> None:
    ticks = datasets.stock_ticks(50_000, rising=0.7, seed=3)
    price, symbol = ticks["price"].to_numpy(), ticks["symbol"].to_numpy()
    assert price.min() >= 1 and price.max() <= 1_000
    steps = np.diff(price[symbol == 1])
    assert set(np.unique(steps)) == {-1, 0, 1}
    # The rest of the probability is shared by standing still and going back.
    assert abs((steps == 0).mean() - 0.15) < 0.01


def test_trades_are_in_order_and_of_the_papers_types() -> None:
    trades = datasets.stock_trades(10_000, seed=1)
    assert (np.diff(trades["ts"].cast(pa.int64()).to_numpy()) >= 0).all()
    text = "PATTERN SEQ(DELL, IPIX, AMAT) AGG COUNT WITHIN 100 ms"
    assert ouzel.match(trades.slice(0, 1_000), text).num_rows > 0


def test_what_is_not_possible_is_refused() -> None:
    with pytest.raises(InputError, match="probability"):
        datasets.stock_ticks(10, rising=2)
    with pytest.raises(InputError, match="negative"):
        datasets.technical_events(-1)

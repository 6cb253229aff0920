"""Streams of stock events: the ticks of SASE+ 6.1, and trades of named stocks as A-Seq 6.1 reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError

# The tickers of A-Seq's queries first; those that follow are rarer.
TICKERS = ("DELL", "IPIX", "AMAT", "QQQ", "MSFT", "INTC", "ORCL", "CSCO", "YHOO", "RIMM")
START_US = 1_714_554_000_000_000  # 2024-05-01 09:00


def stock_ticks(events: int = 100_000, *, symbols: int = 2, rising: float = 0.7, seed: int = 0) -> pa.Table:
    """Events of one type, Stock, with symbol, price (1 to 1,000) and volume (1 to 1,000): SASE+ 6.1.

    A price rises with probability `rising` (the paper's p), and falls or stays with half of the rest each; at either
    end of its range it turns back. Time is the number of the event.

    >>> stock_ticks(3, seed=1).column_names
    ['type', 'ts', 'symbol', 'price', 'volume']
    """
    _check(events, rising)
    rng = np.random.default_rng(seed)
    drawn = rng.random(events)
    symbol = rng.integers(symbols, size=events)
    step = np.where(drawn < rising, 1, np.where(drawn < (1 + rising) / 2, -1, 0))
    price = np.empty(events, np.int64)
    for one in range(symbols):
        own = symbol == one
        walked = rng.integers(1, 1_001) + np.cumsum(step[own])
        # Folding a walk back and forth over [1, 1000] keeps its steps.
        folded = (walked - 1) % 1_998
        price[own] = 1 + np.where(folded < 1_000, folded, 1_998 - folded)
    return pa.table(
        {
            "type": pa.repeat(pa.scalar("Stock"), events),
            "ts": pa.array(np.arange(events, dtype=np.int64)),
            "symbol": pa.array(symbol + 1),
            "price": pa.array(price),
            "volume": pa.array(rng.integers(1, 1_001, size=events)),
        }
    )


def stock_trades(events: int = 120_000, *, traders: int = 100, gap_ms: float = 1.0, seed: int = 0) -> pa.Table:
    """Trades whose event type is the ticker, with trader, price and volume, about `gap_ms` apart: A-Seq 6.1.

    The paper's trace is not public; this one has its size and its kind of types.

    >>> stock_trades(4, seed=1).column_names
    ['ts', 'type', 'trader', 'price', 'volume']
    """
    _check(events, 0.0)
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(TICKERS) + 1) ** 0.5
    codes = rng.choice(len(TICKERS), size=events, p=weights / weights.sum()).astype(np.int32)
    moved = rng.normal(0, 0.002, size=events)
    price = np.empty(events)
    for ticker in range(len(TICKERS)):
        own = codes == ticker
        price[own] = 20 * (ticker + 1) * np.exp(np.cumsum(moved[own]))
    return pa.table(
        {
            "ts": pa.array(START_US + np.cumsum(rng.exponential(gap_ms * 1_000, events)).astype(np.int64)).cast(
                pa.timestamp("us")
            ),
            "type": pa.DictionaryArray.from_arrays(codes, pa.array(TICKERS)).cast(pa.string()),
            "trader": pa.array(rng.integers(traders, size=events)),
            "price": pa.array(np.round(price, 2)),
            "volume": pa.array(rng.integers(1, 1_001, size=events)),
        }
    )


def _check(events: int, rising: float) -> None:
    if events < 0:
        raise InputError(f"the number of events must not be negative, but is {events}")
    if not 0 <= rising <= 1:
        raise InputError(f"rising is a probability, not {rising}")

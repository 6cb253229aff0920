"""The events of the Cayuga paper's technical benchmark (CESAR 5.1, Table 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError


def technical_events(
    events: int = 100_000, *, discrete: int = 4, continuous: int = 4, domain: int = 100, seed: int = 0
) -> pa.Table:
    """One event a tick: discrete attributes d0, d1, … below `domain`, continuous ones c0, c1, … in [0, 1), uniform.

    >>> technical_events(2, discrete=1, continuous=1, seed=1).column_names
    ['ts', 'type', 'd0', 'c0']
    """
    if events < 0:
        raise InputError(f"the number of events must not be negative, but is {events}")
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "ts": np.arange(events, dtype=np.int64),
        "type": pa.repeat(pa.scalar("Event"), events),
    }
    for number in range(discrete):
        columns[f"d{number}"] = rng.integers(0, domain, events)
    for number in range(continuous):
        columns[f"c{number}"] = rng.random(events)
    return pa.table(columns)

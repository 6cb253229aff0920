"""A seeded RFID shop whose readers lose readings, with what really happened.

The shop follows the model of docs/semantics.md, "Probabilities", exactly: an item is on a shelf, perhaps passes an
aisle, comes through the gate before the tills, which misses nothing, is perhaps paid for at a counter, and leaves. A
theft is an item that was on the shelf, passed the aisle and left without having been at the counter. Times are seconds.

With the gate the negative is next to a component that is never missing. Without it in the query the aisle may be
missing right before the counter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel import LossModel
from ouzel.loss import Exponential, Gamma

AISLE_PRIOR, SHELF_PRIOR = 0.9, 0.95
AISLE_GAP, GATE_GAP, EXIT_GAP, COUNTER_GAP = Gamma(4, 90), Gamma(2, 60), Gamma(3, 40), Exponential(150)
# Who passes no aisle walks straight to the gate.
SKIP_GAP = Gamma(3, 50)
WINDOW_S = 7_200
PATTERN = f"PATTERN SEQ(Shelf a, Aisle b, Gate g, !(Counter n), Exit c) WHERE [tag] WITHIN {WINDOW_S}"
WITHOUT_GATE = PATTERN.replace("Gate g, ", "")
RETURN = "RETURN Theft(c.tag AS tag)"


@dataclass(frozen=True)
class LossyShop:
    """`events` has ts, type and tag; `stolen` says of every tag whether it was stolen."""

    events: pa.Table
    stolen: np.ndarray

    def is_true(self, found: pa.Table, components: int) -> np.ndarray:
        """Of each match whether it is what happened: a theft, with all observed readings of the item bound."""
        readings = self.events.filter(pc.is_in(self.events["type"], pa.array(["Shelf", "Aisle"])))["tag"].to_numpy()
        observed = np.bincount(readings, minlength=len(self.stolen))
        tags = found["tag"].to_numpy()
        bound = components - pc.list_value_length(found["missing"]).to_numpy()
        # The gate, if the query has it, and the exit are always observed.
        return self.stolen[tags] & (bound == observed[tags] + components - 2)

    def recall_and_precision(self, reported: np.ndarray) -> tuple[float, float]:
        """Of the tags that are reported at all."""
        tags = np.unique(reported)
        right = int(self.stolen[tags].sum())
        return right / max(int(self.stolen.sum()), 1), right / max(len(tags), 1)


def model_of(loss: float) -> LossModel:
    """What is known of the shop: everything but which readings were lost."""
    return LossModel(
        loss,
        gaps={"b": AISLE_GAP, "g": GATE_GAP, "n": COUNTER_GAP, "c": EXIT_GAP},
        priors={"a": SHELF_PRIOR, "b": AISLE_PRIOR},
        skip_gaps={"b": SKIP_GAP},
        component_loss={"g": 0.0},
        # Every item has one visit and no other readings.
        background=dict.fromkeys("abgn", 1e9),
    )


def lossy_shop(items: int = 20_000, loss: float = 0.05, *, seed: int = 0) -> LossyShop:
    """So many items, one in `loss` of whose readings is lost.

    >>> shop = lossy_shop(1_000, 0.1, seed=1)
    >>> shop.events.column_names, len(shop.stolen)
    (['ts', 'type', 'tag'], 1000)
    """
    rng = np.random.default_rng(seed)
    entered = rng.uniform(0, items * 2.0, items)
    on_shelf = rng.random(items) < SHELF_PRIOR
    in_aisle = rng.random(items) < AISLE_PRIOR
    aisle = entered + np.ceil(AISLE_GAP.sample(rng, items))
    to_gate = np.where(in_aisle, GATE_GAP.sample(rng, items), SKIP_GAP.sample(rng, items))
    gate = np.where(in_aisle, aisle, entered) + np.ceil(to_gate)
    to_exit = EXIT_GAP.sample(rng, items)
    left = gate + np.ceil(to_exit)
    to_counter = COUNTER_GAP.sample(rng, items)
    paid = to_counter < to_exit
    counter = gate + np.minimum(np.ceil(to_counter), np.ceil(to_exit) - 1)
    stories = [
        ("Shelf", entered, on_shelf),
        ("Aisle", aisle, in_aisle),
        ("Gate", gate, np.ones(items, bool)),
        # Readings are told to the second: one within the second of its neighbour would not lie between them.
        ("Counter", counter, paid & (counter > gate)),
        ("Exit", left, np.ones(items, bool)),
    ]
    parts = []
    for name, moments, happened in stories:
        lost = (rng.random(items) < loss) & (name != "Gate")
        seen = np.flatnonzero(happened & ~lost)
        parts.append((np.full(len(seen), name), moments[seen].astype(np.int64), seen))
    types, moments, tags = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(moments, kind="stable")
    events = pa.table({"ts": moments[order], "type": types[order], "tag": tags[order].astype(np.int64)})
    return LossyShop(events, on_shelf & in_aisle & ~paid)

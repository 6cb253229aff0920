"""A day in a shop whose goods carry RFID tags, with its true thefts and misplaced items.

The queries of SASE 2.2 and 2.3 find exactly the true cases, with the same tags. A stolen item is never read at a
register. A misplaced item stays at the wrong place for more than an hour. Similar events are no cases: items that are
bought, carried around or read twice, and tags of another shop at the door.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.errors import InputError

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US

# Goods are put on the shelves more than an hour before any customer moves one. So the hour of the misplacement query
# starts with the customer who took the item, not with the reading of stocking.
STOCKED_FROM_US, STOCKED_UNTIL_US = 5 * HOUR_US, 7 * HOUR_US
OPEN_US, LAST_ENTRY_US, CLOSED_US = 9 * HOUR_US, 20 * HOUR_US, 21 * HOUR_US

SHELF, REGISTER, EXIT, CART = range(4)
TYPE_NAMES = ("Shelf", "Register", "Exit", "Cart")
# The columns of a reading of each type; its other columns are null.
ATTRIBUTES = {
    "Shelf": ("tag_id", "shelf_id", "price"),
    "Register": ("tag_id", "register_id", "price"),
    "Exit": ("tag_id", "door_id"),
    "Cart": ("tag_id", "aisle_id"),
}

# What happens to an item. Each share is of the items that customers take.
STOLEN_SHARE, MISPLACED_SHARE, CARRIED_SHARE, PUT_BACK_SHARE = 0.004, 0.008, 0.03, 0.10
BOUGHT, STOLEN, MISPLACED, CARRIED, PUT_BACK = range(5)

# Shares of all events: stories of taken items, tags of other shops at the doors, carts. The rest are shelf readings.
STORY_SHARE, STRANGER_SHARE, CART_SHARE = 0.45, 0.01, 0.20
REPEATED_SHARE = 0.05  # Readers report some tags twice within seconds.
READINGS_PER_TAKEN_ITEM = 4.3  # Never exceeded on average, see the stories below.
ITEMS_PER_CUSTOMER = 6
REGISTERS, DOORS, CARTS, SHELVES_PER_AISLE = 12, 3, 300, 20


@dataclass(frozen=True)
class ShopDay:
    """The readings of a day in order of time, and the true cases.

    `events` has the columns ts, type, tag_id, shelf_id, register_id, door_id, aisle_id and price. `types` says which
    columns each type of reading has. `thefts` and `misplaced` have one row for each item.
    """

    events: pa.Table
    types: dict[str, pa.Schema]
    thefts: pa.Table
    misplaced: pa.Table

    def by_type(self) -> dict[str, pa.Table]:
        """One table for each type of reading, with only the columns that it has."""
        parts = {}
        for name, schema in self.types.items():
            chosen = pc.equal(self.events.column("type"), name)
            parts[name] = self.events.filter(chosen).select(schema.names)
        return parts


def shop_day(events: int = 1_000_000, *, seed: int = 0, date: str = "2024-05-01", shelves: int = 200) -> ShopDay:
    """A day of `events` readings, at least 1,000, at shelves, registers, doors and from carts.

    >>> day = shop_day(10_000, seed=1)
    >>> day.events.num_rows, day.thefts.num_rows, day.misplaced.num_rows
    (10000, 4, 8)
    >>> day.thefts.column_names
    ['tag_id', 'customer_id', 'shelf_id', 'taken_at', 'left_at', 'price']
    >>> day.misplaced.column_names
    ['tag_id', 'customer_id', 'shelf_id', 'found_on', 'taken_at', 'put_at']
    """
    if events < 1_000:
        raise InputError(f"a day needs at least 1,000 events, not {events}")
    if shelves < 2:
        raise InputError(f"nothing can be misplaced in a shop with {shelves} shelves")
    rng = np.random.default_rng(seed)
    taken = int(events * STORY_SHARE / READINGS_PER_TAKEN_ITEM)
    items = _Items.draw(rng, taken, untouched=taken // 2, shelves=shelves)
    readings = _Readings()
    _stories(rng, items, readings)
    _repeat_some(rng, readings)
    _strangers(rng, int(events * STRANGER_SHARE), len(items.shelf), readings)
    _carts(rng, int(events * CART_SHARE), shelves, readings)
    rest = events - readings.count
    assert rest >= 0, "the stories of items took more than their share of the events"
    _rounds(rng, rest, items, readings)

    midnight_us = int(np.datetime64(date, "us").astype(np.int64))
    return ShopDay(
        events=_table(readings, items, midnight_us),
        types=_types(),
        thefts=_thefts(items, midnight_us),
        misplaced=_misplaced(items, midnight_us),
    )


@dataclass
class _Items:
    """Items, one per entry; taken items come first. Times are since midnight."""

    taken: int
    story: np.ndarray
    customer: np.ndarray
    shelf: np.ndarray
    other_shelf: np.ndarray
    price: np.ndarray
    stocked_us: np.ndarray
    taken_us: np.ndarray
    moved_us: np.ndarray
    returned_us: np.ndarray
    paid_us: np.ndarray
    left_us: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, taken: int, *, untouched: int, shelves: int) -> _Items:
        count = taken + untouched
        customers = max(1, taken // ITEMS_PER_CUSTOMER)
        # Most people come around noon and after work.
        humps = np.where(
            rng.random(customers) < 0.4, rng.normal(12.5, 1.5, customers), rng.normal(17.5, 1.3, customers)
        )
        strays = rng.uniform(OPEN_US, LAST_ENTRY_US, customers)
        entered_us = humps * HOUR_US
        outside = (entered_us < OPEN_US) | (entered_us > LAST_ENTRY_US)
        entered_us = np.where(outside, strays, entered_us)
        # Less than an hour, so that an item that is carried about is paid within the hour of the misplacement query.
        stay_us = rng.uniform(8 * MINUTE_US, 50 * MINUTE_US, customers)

        customer = rng.integers(customers, size=taken)
        start, stay = entered_us[customer], stay_us[customer]
        taken_us = start + stay * rng.uniform(0.05, 0.55, taken)
        paid_us = start + stay * 0.85 + rng.uniform(0, 20 * SECOND_US, taken)
        left_us = start + stay * 0.85 + MINUTE_US + rng.uniform(0, 10 * SECOND_US, taken)
        # Between taking and paying, an item is put elsewhere, and then taken or brought back from there.
        moved_us = taken_us + (paid_us - taken_us) * rng.uniform(0.2, 0.4, taken)
        returned_us = taken_us + (paid_us - taken_us) * rng.uniform(0.6, 0.8, taken)

        story = np.full(taken, BOUGHT)
        shares = (STOLEN_SHARE, MISPLACED_SHARE, CARRIED_SHARE, PUT_BACK_SHARE)
        numbers = [max(1, round(share * taken)) for share in shares]
        chosen = rng.permutation(taken)[: sum(numbers)]
        story[chosen] = np.repeat([STOLEN, MISPLACED, CARRIED, PUT_BACK], numbers)[: len(chosen)]

        shelf = rng.integers(shelves, size=count)
        return cls(
            taken=taken,
            story=story,
            customer=customer,
            shelf=shelf,
            other_shelf=(shelf + rng.integers(1, shelves, size=count)) % shelves,
            price=np.round(np.exp(rng.normal(1.5, 0.8, count)) + 0.01, 2),
            stocked_us=rng.integers(STOCKED_FROM_US, STOCKED_UNTIL_US, size=count),
            taken_us=taken_us.astype(np.int64),
            moved_us=moved_us.astype(np.int64),
            returned_us=returned_us.astype(np.int64),
            paid_us=paid_us.astype(np.int64),
            left_us=left_us.astype(np.int64),
        )

    def of(self, *stories: int) -> np.ndarray:
        return np.flatnonzero(np.isin(self.story, stories))


class _Readings:
    """Readings that are not sorted yet. `place` is a shelf, register, door or aisle. Tags are numbers."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.count = 0

    def add(self, kind: int, time_us: np.ndarray, tag: np.ndarray, place: np.ndarray) -> None:
        self.parts.append((np.full(len(tag), kind, np.int8), time_us, tag, place))
        self.count += len(tag)

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        kind, time_us, tag, place = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        return kind, time_us, tag, place


def _stories(rng: np.random.Generator, items: _Items, readings: _Readings) -> None:
    everything = np.arange(items.taken)
    readings.add(SHELF, items.stocked_us[everything], everything, items.shelf[everything])
    readings.add(SHELF, items.taken_us, everything, items.shelf[everything])
    moved = items.of(MISPLACED, CARRIED)
    readings.add(SHELF, items.moved_us[moved], moved, items.other_shelf[moved])
    returned = items.of(CARRIED)
    # Half of the items that are carried about pass their own shelf again on the way to the register.
    returned = returned[rng.random(len(returned)) < 0.5]
    returned = np.union1d(returned, items.of(PUT_BACK))
    readings.add(SHELF, items.returned_us[returned], returned, items.shelf[returned])
    paid = items.of(BOUGHT, CARRIED)
    readings.add(REGISTER, items.paid_us[paid], paid, items.customer[paid] % REGISTERS)
    gone = items.of(BOUGHT, CARRIED, STOLEN)
    readings.add(EXIT, items.left_us[gone], gone, items.customer[gone] % DOORS)


def _repeat_some(rng: np.random.Generator, readings: _Readings) -> None:
    """Add some readings again, a few seconds later, before anything else can happen to the item."""
    kind, time_us, tag, place = readings.columns()
    again = np.flatnonzero(rng.random(len(kind)) < REPEATED_SHARE)
    later_us = time_us[again] + rng.integers(SECOND_US // 10, 3 * SECOND_US, size=len(again))
    for number in (SHELF, REGISTER, EXIT):
        chosen = kind[again] == number
        readings.add(number, later_us[chosen], tag[again][chosen], place[again][chosen])


def _strangers(rng: np.random.Generator, count: int, first_tag: int, readings: _Readings) -> None:
    """Add readings of tags from other shops, which pass the doors and were never on a shelf here."""
    readings.add(
        EXIT,
        rng.integers(OPEN_US, CLOSED_US, size=count),
        first_tag + rng.integers(max(1, count // 2), size=count),
        rng.integers(DOORS, size=count),
    )


def _carts(rng: np.random.Generator, count: int, shelves: int, readings: _Readings) -> None:
    """Add readings of carts that pass the antennas of aisles. Their tags are negative numbers."""
    readings.add(
        CART,
        rng.integers(OPEN_US, CLOSED_US, size=count),
        -1 - rng.integers(CARTS, size=count),
        rng.integers(1 + shelves // SHELVES_PER_AISLE, size=count),
    )


def _rounds(rng: np.random.Generator, count: int, items: _Items, readings: _Readings) -> None:
    """Add the readings of shelf readers, which report the items on a shelf, each at its own place, until a customer
    takes the item.

    For moved items, no such readings are added. With one, the query would see them as back in their place, or another
    hour would begin.
    """
    free = np.concatenate([items.of(BOUGHT, STOLEN), np.arange(items.taken, len(items.shelf))])
    tag = free[rng.integers(len(free), size=count)]
    until_us = np.full(len(items.shelf), CLOSED_US)
    until_us[: items.taken] = items.taken_us
    time_us = STOCKED_UNTIL_US + (rng.random(count) * (until_us[tag] - STOCKED_UNTIL_US)).astype(np.int64)
    readings.add(SHELF, time_us, tag, items.shelf[tag])


def _types() -> dict[str, pa.Schema]:
    kinds: dict[str, Any] = {"tag_id": pa.string(), "price": pa.float64()}
    head = [("ts", pa.timestamp("us"))]
    return {
        name: pa.schema(head + [(attribute, kinds.get(attribute, pa.int64())) for attribute in attributes])
        for name, attributes in ATTRIBUTES.items()
    }


def _table(readings: _Readings, items: _Items, midnight_us: int) -> pa.Table:
    kind, time_us, tag, place = readings.columns()
    order = np.argsort(time_us, kind="stable")
    kind, time_us, tag, place = kind[order], time_us[order], tag[order], place[order]
    priced = (kind == SHELF) | (kind == REGISTER)
    price = np.where(priced, items.price[np.where(priced, tag, 0)], 0.0)

    def where(number: int) -> pa.Array:
        return pa.array(place.astype(np.int64), mask=kind != number)

    return pa.table(
        {
            "ts": pa.array(time_us + midnight_us).cast(pa.timestamp("us")),
            "type": pa.DictionaryArray.from_arrays(kind, pa.array(TYPE_NAMES)).cast(pa.string()),
            "tag_id": _tag_names(tag),
            "shelf_id": where(SHELF),
            "register_id": where(REGISTER),
            "door_id": where(EXIT),
            "aisle_id": where(CART),
            "price": pa.array(price, mask=~priced),
        }
    )


def _tag_names(tag: np.ndarray) -> pa.Array:
    lowest = int(tag.min(initial=0))
    names = [f"cart-{-number}" if number < 0 else f"tag-{number:07d}" for number in range(lowest, int(tag.max()) + 1)]
    return pa.DictionaryArray.from_arrays((tag - lowest).astype(np.int32), pa.array(names)).cast(pa.string())


def _thefts(items: _Items, midnight_us: int) -> pa.Table:
    stolen = items.of(STOLEN)
    stolen = stolen[np.argsort(items.left_us[stolen], kind="stable")]
    return pa.table(
        {
            "tag_id": _tag_names(stolen),
            "customer_id": pa.array(items.customer[stolen]),
            "shelf_id": pa.array(items.shelf[stolen]),
            "taken_at": pa.array(items.taken_us[stolen] + midnight_us).cast(pa.timestamp("us")),
            "left_at": pa.array(items.left_us[stolen] + midnight_us).cast(pa.timestamp("us")),
            "price": pa.array(items.price[stolen]),
        }
    )


def _misplaced(items: _Items, midnight_us: int) -> pa.Table:
    misplaced = items.of(MISPLACED)
    misplaced = misplaced[np.argsort(items.moved_us[misplaced], kind="stable")]
    return pa.table(
        {
            "tag_id": _tag_names(misplaced),
            "customer_id": pa.array(items.customer[misplaced]),
            "shelf_id": pa.array(items.shelf[misplaced]),
            "found_on": pa.array(items.other_shelf[misplaced]),
            "taken_at": pa.array(items.taken_us[misplaced] + midnight_us).cast(pa.timestamp("us")),
            "put_at": pa.array(items.moved_us[misplaced] + midnight_us).cast(pa.timestamp("us")),
        }
    )

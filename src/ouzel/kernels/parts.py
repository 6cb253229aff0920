"""Divides rows into parts by a hash of their keys, each part in the order of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import ReadOnly
from ouzel.kernels.columns import Numbers, Text, frozen
from ouzel.kernels.jit import kernel
from ouzel.kernels.words import (
    EIGHT,
    EXACT_LENGTH_MAX,
    HALF,
    fold,
    fold_middle,
    hash_integer,
    hash_text,
    load_first_word,
    load_word,
)

Rows = NDArray[np.int32]


def add_hashes(column: Text | Numbers, rows: Rows, hashes: NDArray[np.uint64]) -> None:
    """Mix the values of a column at some rows into the hashes of these rows. Equal values have equal hashes, except
    zeros and NaN of floats.

    >>> hashes = np.zeros(3, np.uint64)
    >>> add_hashes(Numbers(np.array([7, 8, 7]), np.empty(0, np.uint8), 0, False), np.arange(3, dtype=np.int32), hashes)
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    if isinstance(column, Text):
        _add_text(column.offsets, column.data, frozen(rows), hashes)
    else:
        _add_numbers(frozen(column.values), frozen(rows), hashes)


def divide(
    rows: Rows, roles: NDArray[np.uint64], hashes: NDArray[np.uint64], parts: int
) -> tuple[Rows, NDArray[np.uint64], NDArray[np.int64]]:
    """Rows and roles part by part, and the place where each part begins, with the number of rows at the end.

    >>> hashes = np.array([2**63, 0, 2**63], np.uint64)
    >>> rows, _, bounds = divide(np.array([4, 5, 6], np.int32), np.ones(3, np.uint64), hashes, 2)
    >>> rows.tolist(), bounds.tolist()
    ([5, 4, 6], [0, 1, 3])
    """
    divided, divided_roles = np.empty_like(rows), np.empty_like(roles)
    bounds = np.zeros(parts + 1, np.int64)
    _divide(frozen(rows), frozen(roles), frozen(hashes), divided, divided_roles, bounds)
    return divided, divided_roles, bounds


def merge(times: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[Rows, bool]:
    """The order of sorted parts that lie one behind the other, each up to its place in `ends`; and whether two parts
    have equal times, of which the earlier part then comes first.

    >>> order, has_ties = merge(np.array([1, 4, 0, 4, 9]), np.array([2, 5]))
    >>> order.tolist(), has_ties
    ([2, 0, 1, 3, 4], True)
    """
    order = np.empty(times.size, np.int32)
    return order, bool(_merge_parts(frozen(times), frozen(ends), order))


@kernel(allocates=True)
def _merge_parts(
    times: ReadOnly[NDArray[np.int64]], ends: ReadOnly[NDArray[np.int64]], order: NDArray[np.int32]
) -> Any:
    nexts = np.zeros(ends.size, np.int64)
    nexts[1:] = ends[:-1]
    has_ties = False
    for place in range(order.size):
        best = -1
        time = np.int64(0)
        for part in range(ends.size):
            at = nexts[part]
            if at < ends[part]:
                other = times[at]
                if best < 0 or other < time:
                    best = part
                    time = other
                elif other == time:
                    has_ties = True
        order[place] = nexts[best]
        nexts[best] += 1
    return has_ties


@kernel(allocates=True)
def _add_numbers(
    values: ReadOnly[NDArray[np.int64]], rows: ReadOnly[NDArray[np.int32]], hashes: NDArray[np.uint64]
) -> None:
    for place in range(rows.size):
        hashes[place] = fold(hashes[place], hash_integer(values[np.uint32(rows[place])]))


@kernel(allocates=True)
def _add_text(
    offsets: ReadOnly[NDArray[np.int32] | NDArray[np.int64]],
    data: ReadOnly[NDArray[np.uint8]],
    rows: ReadOnly[NDArray[np.int32]],
    hashes: NDArray[np.uint64],
) -> None:
    for place in range(rows.size):
        row = np.uint32(rows[place])
        begin = np.uint64(offsets[row])
        end = np.uint64(offsets[row + np.uint32(1)])
        length = end - begin
        first_word = load_first_word(data, begin, length)
        last_word = load_word(data, end - EIGHT) if length > EIGHT else first_word
        if length > EXACT_LENGTH_MAX:
            first_word = fold_middle(data, begin, end, first_word)
        hashes[place] = fold(hashes[place], hash_text(first_word, last_word, length))


@kernel(allocates=True)
def _divide(
    rows: ReadOnly[NDArray[np.int32]],
    roles: ReadOnly[NDArray[np.uint64]],
    hashes: ReadOnly[NDArray[np.uint64]],
    divided: NDArray[np.int32],
    divided_roles: NDArray[np.uint64],
    bounds: NDArray[np.int64],
) -> None:
    parts = np.uint64(bounds.size - 1)
    places = np.zeros(bounds.size, np.int64)
    for row in range(rows.size):
        part = ((hashes[row] >> HALF) * parts) >> HALF
        bounds[part + np.uint64(1)] += 1
    for part in range(bounds.size - 1):
        bounds[part + 1] += bounds[part]
        places[part] = bounds[part]
    for row in range(rows.size):
        part = ((hashes[row] >> HALF) * parts) >> HALF
        place = places[part]
        places[part] = place + 1
        divided[place] = rows[row]
        divided_roles[place] = roles[row]

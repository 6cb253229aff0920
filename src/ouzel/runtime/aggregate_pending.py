"""Blocks of instances that wait to be counted: joined, chosen from, and handed on in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ouzel.kernels.order import first_disorder, stable_order

if TYPE_CHECKING:
    from ouzel.kernels.counters_shared import SharedInstances
    from ouzel.kernels.counters_tables import CounterInstances

EARLIEST, LATEST = -(2**63), 2**63 - 1
# Below this many the front of a buffer is not worth moving, nor keys worth renaming.
COMPACT_MIN = 4096

Block = TypeVar("Block", "CounterInstances", "SharedInstances")


def chosen(block: Block, places: np.ndarray) -> Block:
    """Some of the instances, each array in one piece."""
    return type(block)._make(np.ascontiguousarray(array[..., places]) if array.shape[-1] else array for array in block)


def joined(blocks: list[Block]) -> Block:
    """All instances of one block or more."""
    if len(blocks) == 1:
        return blocks[0]
    return type(blocks[0])._make(np.concatenate(arrays, axis=-1) for arrays in zip(*blocks, strict=True))


def ready_and_rest(pending: list[Block], until: int) -> tuple[Block, list[Block]]:
    """What is pending at or before a tick, in order of time, and what stays pending."""
    block = joined(pending)
    rest = []
    if until < LATEST and len(block.tick) and block.tick.max() > until:
        rest = [chosen(block, np.flatnonzero(block.tick > until))]
        block = chosen(block, np.flatnonzero(block.tick <= until))
    if first_disorder(block.tick) >= 0:
        block = chosen(block, stable_order(block.tick))
    return block, rest

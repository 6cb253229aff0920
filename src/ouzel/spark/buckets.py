"""The names of buckets, chosen so that Spark spreads them evenly.

A stream's state lives in buckets, and Spark sends the bucket named k to the partition murmur3(k) mod partitions. The
names 0, 1, 2, 3 would leave some of four partitions empty and others with two. Names are therefore picked by the
residue of their hash modulo a number with many divisors, which spreads any run of them evenly over every number of
partitions that divides it. The choice depends on nothing, so a restarted stream finds its state under the same names
whatever the cluster it comes back on.
"""

from __future__ import annotations

from functools import cache

import numpy as np

DIVISIBLE = 9_600  # by 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, … 200
SPARK_SEED = 42


def bucket_names(count: int) -> list[int]:
    """The names of buckets 0 … count - 1.

    >>> [int(murmur3(np.array([name], np.int32))[0]) % 4 for name in bucket_names(8)]
    [0, 1, 2, 3, 0, 1, 2, 3]
    """
    if not 1 <= count <= DIVISIBLE:
        raise ValueError(f"a stream has between 1 and {DIVISIBLE:,} buckets, not {count:,}")
    return _names()[:count]


@cache
def _names() -> list[int]:
    candidates = np.arange(20 * DIVISIBLE, dtype=np.int32)
    residues = murmur3(candidates) % DIVISIBLE
    _, first_with_residue = np.unique(residues, return_index=True)
    assert len(first_with_residue) == DIVISIBLE, "every residue must have a name"
    return [int(name) for name in candidates[first_with_residue]]


def murmur3(values: np.ndarray) -> np.ndarray:
    """Spark's hash of 32-bit integers: murmur3_x86_32 with seed 42, as signed integers."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        mixed = _rotate_left(mixed, 15) * np.uint32(0x1B873593)
        state = _rotate_left(np.uint32(SPARK_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(4)  # the length of the value in bytes
        state ^= state >> np.uint32(16)
        state *= np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state *= np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.astype(np.int32).astype(np.int64)


def _rotate_left(values: np.ndarray, bits: int) -> np.ndarray:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))

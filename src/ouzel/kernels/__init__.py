"""Numba functions over plain arrays: arrays in, arrays out, nothing else of ours imported."""

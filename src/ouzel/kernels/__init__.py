"""Compiled functions over plain arrays: arrays in, arrays out. They import nothing else of Ouzel."""

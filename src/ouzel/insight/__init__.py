"""Tools to understand an answer: why a match did not happen, and pictures of matches."""

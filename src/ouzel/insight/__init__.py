"""Tools for a surprising answer: why a match did not happen, and pictures of the matches that did."""

"""Row patterns: MATCH_RECOGNIZE over tables."""

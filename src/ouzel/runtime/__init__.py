"""Events in, matches out: inputs as columns, sessions that order events and hold state, answers as Arrow tables."""

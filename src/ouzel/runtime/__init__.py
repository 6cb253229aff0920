"""Events in, matches out: inputs as columns, sessions that order events and keep state, answers as Arrow tables."""

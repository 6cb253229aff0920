"""Turns a bound query into the plan that an engine runs: `choose.make_plan(bound)`."""

"""From a bound query to the plan that an engine runs: `choose.make_plan(bound)`."""

"""The tests; a package, so that cases, oracle and harness can be imported by name."""

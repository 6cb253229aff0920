"""The reference evaluator: docs/semantics.md in code, as slow as it likes.

It shares nothing with the binder, the planner and the kernels: only the syntax tree and the parser. Read it beside the
page, in this order: events, values, functions, expressions, conditions, selection, negation, output, oracle.
"""

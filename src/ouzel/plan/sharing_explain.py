"""EXPLAIN of several queries: what is counted together, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ouzel.kernels.counters_shared_tables import Part, SegmentPart
from ouzel.plan.model import Plan
from ouzel.plan.sharing import Bank, SharedPlan, refusal


def sharing_lines(shared: Sequence[SharedPlan], plans: Mapping[str, Plan]) -> list[str]:
    """What is counted together, and why the others are not."""
    lines = []
    for one in shared:
        keys = f", by {', '.join(part.label for part in one.stage.key)}" if one.stage.key else ""
        lines.append(f"{_listed(one.names)} are staged together{keys}")
        for bank in one.banks:
            lines += [f"  {line}" for line in _bank_lines(one, bank)]
    together = {name for one in shared for name in one.names}
    for name, plan in plans.items():
        if name not in together:
            lines.append(f"{name} is answered alone: {refusal(plan) or 'that costs no more than with the others'}")
    return lines


def _bank_lines(shared: SharedPlan, bank: Bank) -> list[str]:
    def named(symbols: Sequence[int]) -> str:
        return ", ".join(shared.stage.query.components[symbol].variable for symbol in symbols)

    span = f"within {bank.window.written or bank.window.ticks}" if bank.window else "since the start"
    expiry = ", told of expiry" if bank.on_change else ""
    lines = [f"{span}{expiry}: {_listed(bank.names)} in one tree of counters"]
    for prefix, members in _common_prefixes(bank):
        lines.append(f"  ({named(prefix)}) is counted once for {_listed(members)}")
    for number, segment in enumerate(bank.segments):
        users = {
            bank.names[query]: None
            for (query, _), pattern in zip(bank.columns, bank.patterns, strict=True)
            if SegmentPart(number) in pattern
        }
        lines.append(f"  ({named(segment)}) is counted once and connected by snapshots for {_listed(list(users))}")
    if bank.shared_cost < bank.alone_cost:
        lines.append(f"  about {bank.shared_cost / bank.alone_cost:.0%} of what counting one by one costs")
    else:
        lines.append("  nothing in common: counting costs what it costs one by one")
    return lines


def _common_prefixes(bank: Bank) -> list[tuple[list[int], list[str]]]:
    """The longest beginnings that several queries share."""
    found: dict[tuple[Part, ...], list[str]] = {}
    for (query, _), pattern in zip(bank.columns, bank.patterns, strict=True):
        for length in range(1, len(pattern) + 1):
            members = found.setdefault(pattern[:length], [])
            if bank.names[query] not in members:
                members.append(bank.names[query])
    shown = []
    for prefix, members in found.items():
        longer = any(
            len(other) == len(prefix) + 1 and other[:-1] == prefix and names == members
            for other, names in found.items()
        )
        if len(members) > 1 and not longer:
            shown.append(([part for part in prefix if isinstance(part, int)], members))
    return shown


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

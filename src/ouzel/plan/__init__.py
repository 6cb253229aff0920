"""From a bound query to the plan that a kernel runs: `plan = optimize(build(bound))`."""

from ouzel.plan.build import build
from ouzel.plan.model import Plan, Statistics
from ouzel.plan.rules import RULES, optimize

__all__ = ["RULES", "Plan", "Statistics", "build", "optimize"]

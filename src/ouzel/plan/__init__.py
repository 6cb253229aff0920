"""From a bound query to the plan that a kernel runs: `plan = make_plan(bound)`."""

from ouzel.plan.build import build
from ouzel.plan.choose import make_plan
from ouzel.plan.model import Plan, Statistics
from ouzel.plan.rules import RULES, optimize

__all__ = ["RULES", "Plan", "Statistics", "build", "make_plan", "optimize"]

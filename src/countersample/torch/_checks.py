"""What the parts of `countersample.torch` check alike."""

from __future__ import annotations

from countersample.errors import ParameterError
from countersample.plans import PLANS, Examples, Plan, make_plan


def plan_of(plan: str | Plan, examples: Examples) -> Plan:
    """Return the plan of a name, or the given plan if it can be one of these examples."""
    if not isinstance(plan, Plan):
        if not isinstance(plan, str) or plan not in PLANS:
            raise ParameterError(f"plan is {plan!r}, expected a Plan or one of {', '.join(PLANS)}")
        return make_plan(plan, examples)
    if len(plan.probabilities) != len(examples):
        raise ParameterError(
            f"the plan is of {len(plan.probabilities):,} examples, expected {len(examples):,}: "
            "make it from the examples of this log by this unit"
        )
    return plan

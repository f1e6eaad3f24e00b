"""Plans of every name for some examples, with what they need made up."""

from countersample.plans import Examples, make_plan

NEEDED = {"bounded": "bounds", "proposal": "probabilities"}


def plan_of(name, log, unit, rng):
    examples = Examples.of(log, unit)
    given = {NEEDED[name]: rng.random(len(examples)) + 0.1} if name in NEEDED else {}
    return make_plan(name, examples, **given)

"""One rule for all commands: better, worse, not shown, or none."""

import pytest

from countersample.evaluation import Difference, decide


def difference(low, high, *, candidate="the ranker", metric="dcg@10"):
    middle = (low + high) / 2
    return Difference(candidate, "logged", metric, middle, low, high, middle, low, high, 0.95)


@pytest.mark.parametrize(
    ("low", "high", "metric", "outcome"),
    [
        (0.01, 0.2, "dcg@10", "better"),
        (-0.2, -0.01, "dcg@10", "worse"),
        (-0.01, 0.2, "dcg@10", "not shown"),
        (0.0, 1e-12, "dcg@10", "not shown"),  # rounding is no gain
        (0.01, 0.2, "arp", "worse"),  # less is better
        (-0.2, -0.01, "arp", "better"),
    ],
)
def test_the_interval_decides(low, high, metric, outcome):
    verdict = decide(difference(low, high, metric=metric))
    assert verdict.outcome == outcome
    assert (verdict.is_better, verdict.is_worse) == (outcome == "better", outcome == "worse")
    assert f"{(low + high) / 2:+.1%} {metric} (95% interval" in str(verdict)


@pytest.mark.parametrize("low", [0.01, -0.2])
def test_reasons_overrule_the_interval(low):
    """A leak before an imitation, an imitation before unidentified propensities."""
    reasons = {"withheld": "ctr leaks", "kept": "nothing is better.", "unidentified": "em"}
    outcomes = [
        decide(difference(low, low + 0.1), **dict(list(reasons.items())[k:])) for k in range(3)
    ]
    assert [each.outcome for each in outcomes] == ["none", "not shown", "not shown"]
    assert outcomes[0].is_withheld
    assert outcomes[0].sentence == "No verdict: ctr leaks."
    assert outcomes[1].sentence == "No change: nothing is better."
    assert "If the estimates of em are right, the ranker is " in outcomes[2].sentence


def test_names_of_candidates_stay_as_they_are():
    verdict = decide(difference(0.1, 0.2, candidate="a.json"))
    assert verdict.sentence.startswith("a.json is better than your current ranker: +15.0%")
    withheld = decide(difference(0.1, 0.2, candidate="a.json"), withheld="a.json was trained on it")
    assert withheld.sentence.startswith("No verdict on a.json over your current ranker: a.json was")

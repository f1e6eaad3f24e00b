"""Option classes: validated on construction, complete, and each default declared once."""

import ast
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pyarrow.compute as pc
import pytest
from conftest import SEED
from requirements import need
from shops import make, opened

import countersample
from countersample.errors import ParameterError
from countersample.export.targets import TARGETS
from countersample.fitting import fit_from_impressions
from countersample.fitting.models import MODELS
from countersample.logs.engines import ENGINES
from countersample.logs.readers import READERS
from countersample.options import (
    EvaluationOptions,
    ExportOptions,
    FeatureOptions,
    LogOptions,
    PropensityOptions,
    RankerOptions,
)
from countersample.propensity import METHODS
from countersample.propensity.curves import TRUST
from countersample.training.optimizers import OPTIMIZERS

SOURCE = Path(countersample.__file__).parent


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (PropensityOptions, {"missing": "drop"}, "missing is 'drop', expected one of error, skip"),
        (PropensityOptions, {"method": "guess"}, "method is 'guess', expected one of auto, logged"),
        (PropensityOptions, {"known": [1.0], "method": "em"}, "leave out method, randomized and"),
        (PropensityOptions, {"gamma": 1.0, "file": "x.json"}, "both given, expected one of them"),
        (PropensityOptions, {"gamma": -1}, "gamma is -1, expected a number of at least 0"),
        (PropensityOptions, {"depth": 0}, "depth is 0, expected a whole number of at least 1"),
        (EvaluationOptions, {"metric": "arp"}, "metric is 'arp', expected dcg@k or precision@k"),
        (
            EvaluationOptions,
            {"metric": "dcg@0"},
            "metric is 'dcg@0', expected dcg@k or precision@k",
        ),
        (EvaluationOptions, {"metric": "dcg@ten"}, "metric is 'dcg@ten', expected dcg@k or"),
        (RankerOptions, {"steps": 10.7}, "steps is 10.7, expected a whole number"),
        (EvaluationOptions, {"confidence": 95}, "confidence is 95, expected a number above 0"),
        (EvaluationOptions, {"holdout": 0.9}, "holdout is 0.9, expected a number above 0"),
        (LogOptions, {"positions_from": 2}, "positions_from is 2, expected 0 or 1"),
        (LogOptions, {"suspicious": "drop"}, "suspicious is 'drop', expected one of keep, skip"),
        (FeatureOptions, {"include": ["a"], "exclude": ["b"]}, "include and exclude are both"),
        (RankerOptions, {"model": "svm"}, "model is 'svm', expected one of linear, neural"),
        (RankerOptions, {"safety": 0.9, "learning_rate": 0.1}, "safety and learning_rate are both"),
    ],
)
def test_a_wrong_value_is_rejected_on_construction(cls, settings, message):
    with pytest.raises(ParameterError, match=message):
        cls(**settings)


def test_an_unknown_option_is_named_with_a_suggestion():
    with pytest.raises(ParameterError, match=r"no option 'colums', did you mean 'columns'\?"):
        LogOptions.of(colums={})


def test_choices_are_the_registries():
    def choices(cls, name):
        (hint,) = [each.type for each in fields(cls) if each.name == name]
        literal = next(x for x in (hint, *get_args(hint)) if "Literal" in str(x))
        return [each.value for each in ast.walk(ast.parse(str(literal), mode="eval"))
                if isinstance(each, ast.Constant) and each.value]  # fmt: skip

    assert choices(LogOptions, "reader") == list(READERS)
    assert choices(LogOptions, "engine") == list(ENGINES)
    assert choices(RankerOptions, "model") == list(MODELS)
    assert choices(PropensityOptions, "method") == ["auto", "logged", *METHODS, TRUST]
    assert set(choices(RankerOptions, "optimizer")) == set(OPTIMIZERS)
    assert choices(ExportOptions, "to") == list(TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.95, "dcg@10"])
def test_a_default_is_written_once(value):
    """As a constant in the code: the default of an argument or a field, or a setting."""
    places = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and type(node.value) is type(value):
                places += [f"{path.name}:{node.lineno}"] if node.value == value else []
    assert [place.partition(":")[0] for place in places] == ["defaults.py"], places


@pytest.mark.parametrize("options", [{"impute": "median"}, {"model": "lightgbm"}])
def test_a_ranker_from_options_is_selected_by_the_metric_of_the_gain(options):
    """Pages show five results, so the default metric is dcg@5, whatever is trained."""
    need(options.get("model", "linear")) if "model" in options else None
    log, features = make(SEED, queries=30, sessions=600)
    short = log.filter(pc.less_equal(log["position"], 5))
    fit = fit_from_impressions(
        *opened(short, features),
        ranker=RankerOptions(**options),
        propensities=PropensityOptions(gamma=1.0),
        seed=SEED,
    )
    assert fit.ranker.metric == fit.gain.new.metric == "dcg@5"


@pytest.mark.slow
def test_another_confidence_changes_every_interval():
    log, features = make(SEED, queries=30, sessions=600)
    fits = [
        fit_from_impressions(
            *opened(log, features), evaluation=EvaluationOptions(confidence=each), seed=SEED
        )
        for each in (0.95, 0.5)
    ]
    for usual, narrow in [
        [fit.gain for fit in fits],
        [fit.ab_plan for fit in fits],
        [fit.gain.new for fit in fits],
    ]:
        assert narrow.high - narrow.low < usual.high - usual.low
    usual, narrow = (fit.propensity_source.curve for fit in fits)
    assert (narrow.high - narrow.low)[-1] < (usual.high - usual.low)[-1]
    assert fits[0].gain.value == fits[1].gain.value

"""The models that `RankerOptions` can name, and how a ranker is made from the options."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from countersample._environment import need
from countersample.errors import ParameterError
from countersample.rankers import load_ranker
from countersample.rankers.base import NOT_OF_TREES

if TYPE_CHECKING:
    from countersample.options import RankerOptions
    from countersample.rankers import ClickRanker

#: By name: the module and the class, the library that it needs, and the parameters to set.
MODELS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "linear": ("countersample.rankers", "CounterSampleRanker", "", {}),
    "neural": ("countersample.torch", "NeuralRanker", "torch", {}),
    "lightgbm": ("countersample.gbdt", "GBDTRanker", "lightgbm", {"backend": "lightgbm"}),
    "xgboost": ("countersample.gbdt", "GBDTRanker", "xgboost", {"backend": "xgboost"}),
}
DEFAULT_MODEL = "linear"


def make_ranker(options: RankerOptions, *, seed: int = 0) -> ClickRanker:
    """Return the ranker that the options describe: untrained, or one to continue from.

    Examples
    --------
    >>> from countersample.fitting.models import make_ranker
    >>> from countersample.options import RankerOptions
    >>> make_ranker(RankerOptions(steps=100)).steps
    100
    """
    ranker = (
        _new_ranker(options, seed)
        if options.warm_start is None
        else _load_warm_start(options, seed)
    )
    model, parameters, settings = model_of(ranker), ranker.get_params(), options.settings
    for name in settings:
        if name == "feature_transform" and name not in parameters:
            raise ParameterError(
                f"transform is not an option of the model {model}: leave it out, as {NOT_OF_TREES}"
            )
        if name not in parameters:
            raise ParameterError(f"{name} is not an option of the model {model}: leave it out")
    if settings.get("normalize") == "none":
        settings["normalize"] = None
    ranker.set_params(**settings)
    return ranker


def model_of(ranker: ClickRanker) -> str:
    """Return the name of a ranker's model, as in `RankerOptions`."""
    return str(ranker.get_params().get("backend", ranker.kind))


def _new_ranker(options: RankerOptions, seed: int) -> ClickRanker:
    module, name, library, settings = MODELS[options.model or DEFAULT_MODEL]
    if library:
        need(library)
    ranker: ClickRanker = getattr(import_module(module), name)(random_state=seed, **settings)
    return ranker


def _load_warm_start(options: RankerOptions, seed: int) -> ClickRanker:
    """Return the saved ranker that training continues from."""
    ranker = load_ranker(str(options.warm_start))
    model = model_of(ranker)
    if options.model not in {None, model}:
        raise ParameterError(
            f"model is {options.model!r}, expected {model!r} as the ranker of the warm start: "
            "leave it out, or train from scratch without a warm start"
        )
    if MODELS[model][2]:
        need(MODELS[model][2])
    ranker.set_params(warm_start=True, random_state=seed)
    return ranker

"""The kinds of ranker that commands can train."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countersample._extras import need
from countersample._params import choice
from countersample.errors import ParameterError

if TYPE_CHECKING:
    from countersample.rankers import ClickRanker

# Where the class of each model is, the library it needs, and what is set in it.
MODELS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "linear": ("countersample.rankers", "CounterSampleRanker", "", {}),
    "neural": ("countersample.torch", "NeuralRanker", "torch", {}),
    "lightgbm": ("countersample.gbdt", "GBDTRanker", "lightgbm", {"backend": "lightgbm"}),
    "xgboost": ("countersample.gbdt", "GBDTRanker", "xgboost", {"backend": "xgboost"}),
}
Model = Annotated[str, typer.Option(help=f"What to train: {', '.join(MODELS)}.")]


def make_ranker(model: str, given: dict[str, Any], seed: int) -> ClickRanker:
    """Return the ranker of a model's name with these settings; refuse those it does not have."""
    choice("--model", model, MODELS)
    module, name, library, settings = MODELS[model]
    if library:
        need(library)
    ranker: ClickRanker = getattr(import_module(module), name)(random_state=seed, **settings)
    known = ranker.get_params()
    for option in given:
        if option == "transform" and option not in known:
            from countersample.rankers.chosen import NOT_OF_TREES

            raise ParameterError(
                f"--transform is not an option of --model {model}: leave it out, as {NOT_OF_TREES}"
            )
        if option not in known:
            raise ParameterError(
                f"--{option.replace('_', '-')} is not an option of --model {model}: leave it out"
            )
    if given.get("normalize") == "none":
        given["normalize"] = None
    ranker.set_params(**given)
    return ranker

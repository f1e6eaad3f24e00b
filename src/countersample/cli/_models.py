"""The kinds of ranker that commands can train."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
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
LINEAR = "linear"  # the default
Model = Annotated[
    str | None,
    typer.Option(help=f"What to train: {', '.join(MODELS)}; by default {LINEAR}, or as --from."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="A ranker to go on from, such as yesterday's, with its settings; the log has clicks "
        "that it has not learned from.",
    ),
]


def make_ranker(
    model: str | None, given: dict[str, Any], seed: int, previous: Path | None = None
) -> ClickRanker:
    """Return the ranker of a model's name with these settings; refuse those it does not have.

    With a `previous` one, that is the ranker, and it is to go on from there.
    """
    if model is not None:
        choice("--model", model, MODELS)
    if previous is not None:
        ranker = _loaded(previous, model, seed)
        model = model_of(ranker)
    else:
        model = LINEAR if model is None else model
        module, name, library, settings = MODELS[model]
        if library:
            need(library)
        ranker = getattr(import_module(module), name)(random_state=seed, **settings)
    known = ranker.get_params()
    for option in given:
        if option == "feature_transform" and option not in known:
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


def model_of(ranker: ClickRanker) -> str:
    """Return the name of the model that a ranker is."""
    return str(ranker.get_params().get("backend", ranker.kind))


def _loaded(path: Path, model: str | None, seed: int) -> ClickRanker:
    """Return a ranker that goes on from where its file is."""
    from countersample.rankers import load_ranker

    ranker = load_ranker(path)
    found = model_of(ranker)
    if model is not None and model != found:
        raise ParameterError(
            f"--model is {model!r} where the ranker of --from is {found!r}, expected the same: "
            "leave --model out, or train anew without --from"
        )
    library = MODELS[found][2]
    if library:
        need(library)
    ranker.set_params(warm_start=True, random_state=seed)
    return ranker

"""The input of every target, `ModelSpecification`, and its output, `Translation`.

A specification is a scorer with the preprocessing before it. It checks once, for all targets, what
a system cannot express: transforms, normalisation by query, missing values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countersample import pages
from countersample.errors import DataError, ParameterError
from countersample.rankers.files import takes_missing
from countersample.scorers import LinearScorer, TreesScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from countersample.data.preprocessing import Normalizer, Preprocessing
    from countersample.rankers import ClickRanker
    from countersample.scorers import Scorer

    Norm = Callable[[float, float], dict[str, Any]]

_NAME = re.compile(r"[\w.-]+")
_TRANSFORMS = {"root": "square roots", "log": "logarithms", "quantile": "quantiles"}


@dataclass(frozen=True, eq=False)
class ModelSpecification:
    """score = scorer(preprocessing(x)): a ranker to be computed by another system.

    Attributes
    ----------
    system, name, file : str
        The other system in sentences, the model's name there, and the name of its file.
    kind : {"linear", "neural", "boosted"}
        A boosted ranker without a tree is exported as a linear one.
    scorer, preprocessing
        The score is the scorer's, of the features after preprocessing.
    feature_names : tuple of str, optional
    fingerprint : str
        The fingerprint of the training data.
    """

    system: str
    name: str
    file: str
    kind: str
    scorer: Scorer
    preprocessing: Preprocessing
    feature_names: tuple[str, ...] | None
    fingerprint: str

    @classmethod
    def of(
        cls, ranker: ClickRanker, system: str, name: str, file: str, feature_names: Sequence[str]
    ) -> ModelSpecification:
        """Return the specification of a fitted ranker; `feature_names` replace its own."""
        ranker._check_fitted()  # noqa: SLF001 (the same error everywhere)
        check_name(name, option="name")
        feature_names = feature_names or getattr(ranker, "feature_names_in_", ())
        names = tuple(map(str, feature_names)) or None
        if names is not None:
            _check_names(names, ranker.n_features_in_)
        kind, scorer = ranker.kind, ranker.scorer_
        if isinstance(scorer, TreesScorer) and scorer.base is not None and not scorer.n_trees:
            kind, scorer = "linear", LinearScorer(scorer.base, scorer.base_missing)
        return cls(
            system, name, file, kind, scorer, ranker.preprocessing_, names, ranker.fingerprint_
        )

    @property
    def n_features(self) -> int:
        """The number of features, without indicators."""
        imputer = self.preprocessing.imputer
        return self.scorer.n_features if imputer is None else imputer.n_features

    @property
    def takes_missing(self) -> bool:
        """Whether a feature may be missing."""
        return takes_missing(self.scorer, self.preprocessing) or self._has_missing_weights

    @property
    def _has_missing_weights(self) -> bool:
        """Whether it is the linear start of trees that were trained with missing features."""
        return isinstance(self.scorer, LinearScorer) and self.scorer.missing is not None

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Whether each feature was constant in training, so that it does not count."""
        normalizer = self.preprocessing.normalizer
        if normalizer is None or normalizer.scale is None:
            return np.zeros(self.scorer.n_features, np.bool_)
        constant: NDArray[np.bool_] = np.array(normalizer.scale) == 0
        return constant

    @property
    def features_file(self) -> str:
        """The name of the file that defines the features, beside the model's."""
        return Path(self.file).with_suffix(".features.json").name

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the scorer's inputs: the features and their indicators."""
        imputer = self.preprocessing.imputer
        if self.feature_names is None or imputer is None:
            return self.feature_names
        return imputer.names(self.feature_names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, for a system that needs them."""
        if self.feature_names is None:
            raise ParameterError(
                f"{self.system} identifies features by name, and this ranker has none: give the "
                f"{self.n_features:,} names, in the order of training, with feature_names "
                "(--feature-names)"
            )
        return self.feature_names

    @property
    def names_by_item(self) -> tuple[str, ...]:
        """The names of features and indicators for a system that scores item by item.

        There an indicator is a feature of its own.
        """
        if self.preprocessing.is_by_query:
            raise ParameterError(
                f"{self.system} scores item by item and cannot normalise by query (normalize="
                "'query-minmax'): train with normalize='minmax' or 'standard', or normalise in "
                "your own pipeline and train with normalize=None, or export to ONNX with "
                "one_query=True (--to onnx --one-query)"
            )
        names = self.names
        if self._has_missing_weights:
            raise ParameterError(
                f"{self.system} reads missing features as 0, and this ranker has a weight of its "
                "own for each missing feature: export to ONNX (--to onnx) or SQL (--to sql), or "
                "train a linear ranker"
            )
        if self.preprocessing.imputer is not None:
            names = self.preprocessing.imputer.names(names)
            _check_names(names, len(names))
        return names

    @property
    def trees_alone(self) -> TreesScorer:
        """The trees, for a system that cannot add a linear part to them."""
        if not isinstance(self.scorer, TreesScorer):
            raise TypeError(f"{self.kind} rankers have no trees")
        if self.scorer.base is not None:
            raise ParameterError(
                f"{self.system} cannot add trees to a linear model, and the trees of this ranker "
                "were boosted from one: export to ONNX (--to onnx) or SQL (--to sql), or train "
                "with start='zero'"
            )
        return self.scorer

    @property
    def ranges(self) -> list[tuple[float, float] | None]:
        """(shift, scale) per feature; None for a feature that is not normalised.

        None is for all features of a ranker that does not normalise, and for features that were
        constant in training: the scorer's weights on them have to be 0.
        """
        normalizer = self.preprocessing.normalizer
        if normalizer is None or normalizer.shift is None or normalizer.scale is None:
            return [None] * self.scorer.n_features
        if normalizer.transform_name is not None:
            self._reject_transform(normalizer)
        for index, scale in enumerate(normalizer.scale):
            if scale > 0 and not 0 < as_float32(scale) < np.inf:
                raise DataError(
                    f"feature {index} is normalised with a scale of {scale:.3g}, expected one "
                    f"that is neither 0 nor infinite in float32, in which {self.system} "
                    "computes: rescale that feature before training, or leave it out"
                )
        pairs = zip(normalizer.shift, normalizer.scale, strict=True)
        return [(shift, scale) if scale > 0 else None for shift, scale in pairs]

    def _reject_transform(self, normalizer: Normalizer) -> None:
        numbers = normalizer.roots or normalizer.logs or normalizer.knots or ()
        first, *others = (index for index, each in enumerate(numbers) if each)
        more = f" and {len(others):,} more" if others else ""
        raise ParameterError(
            f"{self.system} cannot compute the {_TRANSFORMS[normalizer.transform_name or 'root']} "
            f"of feature {self.names_by_item[first]!r}{more} "
            f"({normalizer.label}): export to ONNX (--to onnx) or SQL (--to sql), or compute them "
            "in your own pipeline and train on the result with normalize='minmax', or train with "
            "normalize='minmax' or 'standard' and feature_transform=None"
        )

    def norms(self, minmax: Norm, standard: Norm) -> list[dict[str, Any] | None]:
        """Return `minmax` of (minimum, maximum) or `standard` of (mean, deviation) per feature."""
        normalizer = self.preprocessing.normalizer
        if normalizer is not None and normalizer.how != "standard":
            return [None if each is None else minmax(each[0], sum(each)) for each in self.ranges]
        return [None if each is None else standard(*each) for each in self.ranges]

    def weights_by_name(self, scorer: LinearScorer) -> dict[str, float]:
        """Return the weight of each normalised feature."""
        weights = np.where(self.is_constant, 0, scorer.weights)
        is_large = np.abs(weights) > np.finfo(np.float32).max
        if is_large.any():
            raise ParameterError(
                f"a weight is {weights[is_large][0]:.3g}, expected a number of 32 bits, as the "
                "system stores them: train the ranker on features of a larger scale"
            )
        return dict(zip(self.names_by_item, map(as_float32, weights), strict=True))

    def limits(self, **choices: Any) -> tuple[str, ...]:  # noqa: ANN401 (of the target)
        """Return the differences between the system and the ranker, one sentence each."""
        choices = {"model_type": None, "query": None, "dialect": None} | choices
        text = pages.render_markdown(str(__package__), "limits.md", spec=self, **choices)
        return tuple(text.splitlines())


@dataclass(frozen=True)
class Translation:
    """A ranker in the format of another system, with the texts of its card.

    Attributes
    ----------
    content : bytes
        The content of the file.
    loading : str
        How to load it, in Markdown.
    features : object, optional
        A definition of the features, to be filled in, for a JSON file of its own.
    form, limits, checked
        See `countersample.export.Exported`.
    """

    content: bytes
    form: str
    loading: str
    limits: tuple[str, ...]
    features: Any = None
    checked: str = "It is written in the documented format and was not run in a server."


def as_float32(value: float) -> float:
    """Return the nearest float32, as a float whose text other systems read without loss."""
    return float(np.float32(value))


def check_name(name: str, *, option: str) -> None:
    """Reject a name that would need quoting in a request or a command."""
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"{option} is {name!r}, expected letters, digits, '_', '.' and '-' only: choose "
            f"another with {option} (--{option.replace('_', '-')})"
        )


def _check_names(names: tuple[str, ...], n_features: int) -> None:
    if len(names) != n_features:
        raise ParameterError(
            f"feature_names has {len(names):,} names, expected {n_features:,}: one for each "
            "feature, in the order of training"
        )
    if "" in names:
        raise ParameterError(
            f"feature_names has an empty name at index {names.index('')}, expected a name for each"
        )
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ParameterError(
            f"feature_names has {double!r} more than once, expected each feature to have its own"
        )

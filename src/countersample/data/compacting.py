"""What a dataset has of compact features: `RankingDataset.compact`, `compact_report` and `bits`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from countersample.data.compact import CompactFeatures, choose_bits
from countersample.errors import DataError

if TYPE_CHECKING:
    from countersample.data.compact import CompactReport
    from countersample.data.dataset import RankingDataset


class _Dataset(Protocol):
    @property
    def features(self) -> Any: ...  # noqa: ANN401 (array or codes)
    @property
    def names_of_features(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def bits(self) -> int | None: ...
    def with_features(self, features: CompactFeatures) -> RankingDataset: ...
    def with_codes(self, features: CompactFeatures) -> RankingDataset: ...


class Compactable:
    """A dataset whose features may be codes."""

    def compact(self: _Dataset, bits: int | str = "auto", *, roots: bool = False) -> RankingDataset:
        """Return the dataset with its features in 8 or 16 bits: a quarter or half of the memory.

        Training, scoring and judging read the codes, and never all numbers. A ranker that is
        trained on them scores features as they are.

        Parameters
        ----------
        bits : 8, 16 or "auto"
            "auto" takes 8 where no value is off by more than a twentieth of the standard deviation
            of its feature, else 16: see `compact_report`.
        roots : bool
            Whether features with heavy tails are put on a root scale before, as
            ``normalize="root-minmax"`` does in rankers, which reads these codes as they are.

        Examples
        --------
        >>> from countersample import synthetic
        >>> data = synthetic("tiny", rng=0)
        >>> small = data.compact()
        >>> small.bits, data.features.nbytes / small.features.nbytes
        (8, 4.0)
        >>> float(abs(small.features[:] - data.features).max()) < 0.01
        True
        >>> small.fingerprint == data.fingerprint
        True
        """
        if self.bits is not None:
            raise DataError(
                f"the dataset has {self.bits} bits a feature already: make it of the original"
            )
        chosen = choose_bits(self.features, self.names_of_features, bits, roots=roots)
        return self.with_codes(
            CompactFeatures.of(self.features, bits=chosen.bits, roots=chosen.roots_taken)
        )

    def with_codes(self: _Dataset, features: CompactFeatures) -> RankingDataset:
        """Return the same dataset with its features as these codes."""
        made = self.with_features(features)
        made.__dict__["fingerprint"] = self.fingerprint
        return made

    def compact_report(
        self: _Dataset, bits: int | str = "auto", *, roots: bool = False
    ) -> CompactReport:
        """Return what `compact` would lose of each feature; of codes, what they lost.

        Examples
        --------
        >>> from countersample import synthetic
        >>> synthetic("tiny", rng=0).compact_report().sentence[:43]
        '8 bits a feature: no value is off by more t'
        """
        return choose_bits(self.features, self.names_of_features, bits, roots=roots)

    @property
    def bits(self: _Dataset) -> int | None:
        """The bits of a feature of a compact dataset; None where features are float32."""
        return self.features.bits if isinstance(self.features, CompactFeatures) else None

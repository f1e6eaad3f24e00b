"""What a kind of study is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path

    from countersample.study.design.grids import Grid
    from countersample.study.design.published import Published
    from countersample.study.design.study import Study
    from countersample.study.findings.claims import Verdict
    from countersample.study.findings.tables import Table
    from countersample.study.report.model import Figure, LogDiagnosis
    from countersample.study.results import StudyResult
    from countersample.study.running.jobs import WorkList
    from countersample.study.running.store import Store


@dataclass(frozen=True)
class Done:
    """Studies whose jobs are done.

    Attributes
    ----------
    work : WorkList
    store : Store
    published : Published
        The paper's numbers.
    """

    work: WorkList
    store: Store
    published: Published

    @property
    def figures(self) -> Path:
        """The folder that figures are drawn into."""
        return self.store.folder / "figures"

    def read(self, *name: Hashable) -> list[dict[str, Any]]:
        """Return the results that a study keeps under a name (see `WorkList.keep`)."""
        return [self.store.read(job) for job in self.work.others[name]]


@dataclass(frozen=True)
class WriteUp:
    """What came out of a study.

    Attributes
    ----------
    tables : tuple of Table
        The main one first.
    verdicts : tuple of Verdict
    drawn : tuple of str
        The names of the figures in `Done.figures`, without suffixes.
    figures : tuple of Figure
        Those that stand in the report.
    curves : StudyResult, optional
        Drawn by the report itself.
    toy : mapping, optional
        The two-weight example, drawn by the report itself.
    logs : tuple of LogDiagnosis
    """

    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...] = ()
    drawn: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    curves: StudyResult | None = None
    toy: Mapping[str, Any] | None = None
    logs: tuple[LogDiagnosis, ...] = ()


class Kind:
    """A kind of study: what it plans and writes up; what it does is in the jobs it plans.

    Attributes
    ----------
    name : str
        As grids have it.
    takes_data : bool
        Whether it has datasets.
    """

    name: str
    takes_data: bool = True

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid that cannot be a study of this kind."""

    def plan(self, study: Study, work: WorkList) -> None:
        """Add the jobs of a study to a work list; a job carries the function that does it."""
        raise NotImplementedError

    def write_up(self, study: Study, done: Done) -> WriteUp:
        """Draw the figures of a study, and return what came out of it."""
        raise NotImplementedError

"""What a kind of study is."""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape
from typing import TYPE_CHECKING, Any

from countersample.study.findings.write_tables import write_table
from countersample.study.report.page import Link, Section

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from pathlib import Path

    from countersample.study.design.grids import Grid
    from countersample.study.design.published import Published
    from countersample.study.design.sources import Study
    from countersample.study.findings.tables import Table
    from countersample.study.running.jobs import WorkList
    from countersample.study.running.store import Store


@dataclass(frozen=True)
class Done:
    """Studies whose jobs are done."""

    work: WorkList
    store: Store
    published: Published  # the paper's numbers

    @property
    def figures(self) -> Path:
        """The folder that figures are drawn into."""
        return self.store.folder / "figures"

    def section(
        self,
        study: Study,
        tables: tuple[Table, ...],
        drawn: Iterable[str] = (),
        **more: Any,  # noqa: ANN401
    ) -> Section:
        """Write the tables of a study, the main one first, and return its part of the report.

        `drawn` are the names of its figures in `figures`, without suffixes; what is more are other
        fields of `Section`.
        """
        folder = self.store.folder
        files = [path for table in tables for path in write_table(table, folder / "tables")]
        files += [path for name in drawn for path in sorted(self.figures.glob(f"{escape(name)}.*"))]
        links = [Link(path.relative_to(folder).as_posix(), path.suffix[1:]) for path in files]
        grid = study.grid
        return Section(
            grid.name, grid.title, grid.about, grid.paper, tables, files=tuple(links), **more
        )

    def read(self, *name: Hashable) -> list[dict[str, Any]]:
        """Return the results that a study keeps under a name (see `WorkList.keep`)."""
        return [self.store.read(job) for job in self.work.others[name]]


class Kind:
    """A kind of study: what it plans and writes up; what it does is in the jobs it plans."""

    name: str  # as grids have it
    takes_data: bool = True  # whether it has datasets

    def check(self, grid: Grid) -> None:
        """Raise a `ParameterError` for a grid that cannot be a study of this kind."""

    def plan(self, study: Study, work: WorkList) -> None:
        """Add the jobs of a study to a work list; a job carries the function that does it."""
        raise NotImplementedError

    def write_up(self, study: Study, done: Done) -> Section:
        """Write the tables and figures of a study, and return its part of the report."""
        raise NotImplementedError

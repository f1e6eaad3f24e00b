"""The interface of a kind of study."""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from countersample.study.findings.table_formats import write_table
from countersample.study.report import Figure, Link, Section

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

    from countersample.study.design.grids import Grid, Published
    from countersample.study.design.sources import Study
    from countersample.study.findings.tables import Table
    from countersample.study.running.jobs import WorkList
    from countersample.study.running.store import Store


class Drawing(NamedTuple):
    """A figure among the files of a study: its name, what it shows, and its caption.

    Without a caption it is linked, and not shown on the page.
    """

    name: str
    alt: str = ""
    caption: str = ""


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
        drawings: Sequence[Drawing] = (),
        **more: Any,  # noqa: ANN401
    ) -> Section:
        """Write the tables of a study, the main one first, and return its part of the report.

        Its figures are those of `figures`. `more` are other fields of `Section`.
        """
        folder = self.store.folder
        files = [path for table in tables for path in write_table(table, folder / "tables")]
        for drawing in drawings:
            files += sorted(self.figures.glob(f"{escape(drawing.name)}.*"))
        figures = tuple(
            Figure(self.figures / f"{name}.png", alt, caption)
            for name, alt, caption in drawings
            if caption
        )
        links = [Link(path.relative_to(folder).as_posix(), path.suffix[1:]) for path in files]
        grid = study.grid
        return Section(
            grid.name, grid.title, grid.about, grid.paper, tables, figures,
            files=tuple(links), **more,
        )  # fmt: skip

    def read(self, *name: Hashable) -> list[dict[str, Any]]:
        """Return the results of a study under a name (see `WorkList.keep`)."""
        return [self.store.read(job) for job in self.work.others[name]]


class Kind:
    """A kind of study: the jobs that it plans, and the section that it writes."""

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

"""Results as data frames with named columns, and as tables in a notebook."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from countersample._environment import need
from countersample._params import choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

BACKENDS = ("pandas", "polars", "pyarrow")
_MAX_ROWS = 10  # in a notebook


def make_frame(columns: Mapping[str, ArrayLike], backend: str | None = None) -> Any:  # noqa: ANN401 (a frame)
    """Return a data frame of columns, each (n_rows,); `backend` as in `Tabular.to_frame`.

    >>> make_frame({"position": [1, 2], "value": [1.0, 0.5]}, backend="pyarrow").to_pylist()
    [{'position': 1, 'value': 1.0}, {'position': 2, 'value': 0.5}]
    """
    if backend is None:
        backend = "pandas" if find_spec("pandas") else "pyarrow"
    library = need(choice("backend", backend, BACKENDS))
    make = library.table if backend == "pyarrow" else library.DataFrame
    return make(dict(columns))


class Tabular:
    """A result with columns, for data frames and notebooks."""

    def columns_of_frame(self) -> dict[str, ArrayLike]:
        """Return the columns of `to_frame`, each (n_rows,)."""
        raise NotImplementedError

    def to_frame(self, backend: str | None = None) -> Any:  # noqa: ANN401 (a frame)
        """Return a data frame with named columns.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; pandas if it is installed, else pyarrow.
        """
        return make_frame(self.columns_of_frame(), backend)

    def _shown(self) -> Mapping[str, ArrayLike]:
        """Return the columns in a notebook; by default the columns of the frame."""
        return self.columns_of_frame()

    def _repr_html_(self) -> str:
        from countersample.pages import notebook_table  # noqa: PLC0415 (only where shown)

        columns = self._shown()
        n_rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
        cells = [[_format(value) for value in column[:_MAX_ROWS]] for column in columns.values()]  # type: ignore[index,union-attr]
        caption = type(self).__name__
        if n_rows > _MAX_ROWS:
            caption += f": the first {_MAX_ROWS} of {n_rows:,} rows"
        return notebook_table(list(columns), zip(*cells, strict=True), caption=caption)


def statistics(values: Mapping[str, Any]) -> dict[str, ArrayLike]:
    """Return the values that are numbers as columns: ``statistic``, ``value``.

    >>> statistics({"n_clicks": 3.0, "verdict": "all is well"})
    {'statistic': ['n_clicks'], 'value': [3.0]}
    """
    numbers = {name: float(x) for name, x in values.items() if isinstance(x, int | float)}
    return {"statistic": list(numbers), "value": list(numbers.values())}


def _format(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

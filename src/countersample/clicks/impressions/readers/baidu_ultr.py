"""Baidu-ULTR as the University of Amsterdam gives it: Feather files of clicks.

=============  ====================================================================
``query_id``   as it is
``item_id``    ``url_md5``
``position``   as it is: among the results that are left, so not always where Baidu
               showed them
``click``      as it is
``session``    the page: a row of lists, or the rows of one ``query_no`` of a file
=============  ====================================================================

The files ``part-*_split-*.feather`` have a row for each document; what the library ``datasets``
makes of them has a row for each page, with lists. Both are read, and Parquet too. Other columns can
be mapped: ``query_id=query_md5``, ``context=media_type``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.formats import Feather, Parquet
from countersample.clicks.impressions.readers.base import SqlReader, need_columns
from countersample.clicks.impressions.sql import quoted
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack

    import pyarrow as pa

    from countersample.clicks.impressions.engines import DuckDB
    from countersample.clicks.impressions.preparing import Preparation

_NAMES = {"query_id": "query_id", "item_id": "url_md5", "position": "position", "click": "click"}
_PAGE = "query_no"  # of a file, in which query_id may come again
_NUMBERED = "(select *, row_number() over () as page from {view})"
_SELECT = "select {columns} from {rows}"


class BaiduUltr(SqlReader):
    """Clicks of Baidu-ULTR, a row for each page or for each document."""

    def relation(  # noqa: D102 (as in SqlReader)
        self, source: str, engine: DuckDB, preparation: Preparation, cleanup: ExitStack
    ) -> Any:  # noqa: ANN401 (a relation)
        files = find_files(source).unpacked(engine.unpacks, cleanup)
        if not isinstance(files.format, Feather | Parquet):
            raise DataError(f"a {files.format.name} file, expected Feather or Parquet")
        parts = [path for path in files.paths if Path(path).name.startswith("part-")]
        selects = []
        for number, path in enumerate(parts or files.paths):  # not validation.feather beside them
            view = f"baidu_{number}"
            schema = _register(engine, view, path, files.format.name, preparation)
            selects.append(_select(view, number, schema, preparation))
        return engine.connection.sql(" union all by name ".join(selects))


def _register(
    engine: DuckDB, view: str, path: str, kind: str, preparation: Preparation
) -> pa.Schema:
    """Make a file a view of what is needed; DuckDB cannot read the vectors beside it."""
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)
    from pyarrow import dataset  # noqa: PLC0415

    data = dataset.dataset(path, format=kind)
    need_columns("Baidu-ULTR", tuple(_NAMES.values()), data.schema.names)
    wanted = {*_NAMES.values(), _PAGE, *preparation.own_names}
    schema = pa.schema([field for field in data.schema if field.name in wanted])
    engine.connection.register(view, data.replace_schema(schema))
    return schema


def _select(view: str, number: int, schema: pa.Schema, preparation: Preparation) -> str:
    import pyarrow as pa  # noqa: PLC0415 (heavy, only where used)

    is_list = {
        field.name: pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
        for field in schema
    }
    named = _NAMES | {own: own for own in preparation.own_names if own in is_list}
    made = [
        (f"unnest({quoted(own)})" if is_list[own] else quoted(own)) + f" as {quoted(name)}"
        for name, own in named.items()
    ]
    rows = view
    if is_list[_NAMES["click"]]:
        rows = _NUMBERED.format(view=view)
        made.append(f"'{number}/' || page as session")
    elif _PAGE in is_list:
        made.append(f"'{number}/' || {_PAGE} as session")
    return _SELECT.format(columns=", ".join(made), rows=rows)

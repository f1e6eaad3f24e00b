"""The Open Bandit Dataset (ZOZO, 2020): a row for each item that a bandit put on the page.

=============  ====================================================================
``query_id``   the campaign, by the name of the file: ``all``, ``men`` or ``women``
``item_id``    as it is
``position``   as it is: 1, 2, 3 from left to right
``click``      as it is
``policy``     the folder the file is in: ``random`` or ``bts``
``timestamp``  as it is
=============  ====================================================================

``propensity_score`` is how likely the policy chose the item for the position, not how likely a user
looked at it, and is not read: how often an item was shown where is counted in the log itself. It,
and any other column, can be mapped: ``context=user_feature_0``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import narwhals as nw

from countersample.clicks.impressions.files import find_files
from countersample.clicks.impressions.readers.base import Opened, Reader, need_columns
from countersample.errors import DataError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from countersample.clicks.impressions.engines import Engine
    from countersample.clicks.impressions.preparing import Preparation

_EXPECTED = ("timestamp", "item_id", "position", "click", "propensity_score")
_READ = ("timestamp", "item_id", "position", "click", "query_id", "policy")
_POLICIES = ("random", "bts")
_ITEMS = "item_context"  # the file beside, of the items' features


class OpenBandit(Reader):
    """Files ``random/all/all.csv`` and the like, one or all of a folder."""

    def open(  # noqa: D102 (as in Reader)
        self, source: str, engine: Engine, preparation: Preparation, cleanup: ExitStack
    ) -> Opened:
        files = find_files(source)
        paths = [path for path in files.paths if _campaign(path) != _ITEMS]
        if not paths:
            raise DataError("only item_context, expected impressions such as random/all/all.csv")
        frames = []
        for path in paths:
            part = replace(files, paths=(path,)).unpacked(engine.unpacks, cleanup)
            frame = nw.from_native(engine.scan(part)).lazy()
            found = frame.collect_schema().names()
            need_columns("the Open Bandit Dataset", _EXPECTED, found)
            own = sorted({name for name in preparation.own_names if name in found})
            named = frame.with_columns(
                query_id=nw.lit(_campaign(path)), policy=nw.lit(_policy(path))
            )
            frames.append(named.select(*dict.fromkeys((*_READ, *own))))
        made = frames[0] if len(frames) == 1 else nw.concat(frames)
        return Opened(preparation.select(made), files.format.has_text_ids)


def _campaign(path: str) -> str:
    return Path(path).name.split(".")[0]


def _policy(path: str) -> str:
    """Return the nearest folder that is called as a policy."""
    folders = reversed(Path(path).absolute().parent.parts)
    policy = next((folder for folder in folders if folder in _POLICIES), None)
    if policy is None:
        raise DataError(
            f"{path} is in no folder {' or '.join(_POLICIES)}, which tells the policy: keep the "
            "folders of the archive"
        )
    return policy

"""Other people's logs: a reader is one file here and one line in `READERS`."""

from __future__ import annotations

from countersample._params import choice
from countersample.clicks.impressions.readers.baidu_ultr import BaiduUltr
from countersample.clicks.impressions.readers.base import Reader
from countersample.clicks.impressions.readers.expedia import Expedia
from countersample.clicks.impressions.readers.metarank import Metarank
from countersample.clicks.impressions.readers.open_bandit import OpenBandit
from countersample.clicks.impressions.readers.plain import Plain
from countersample.clicks.impressions.readers.ubi import Ubi
from countersample.clicks.impressions.readers.yandex import Yandex

__all__ = ["READERS", "Reader", "find_reader"]

READERS: dict[str, type[Reader]] = {
    "ubi": Ubi,
    "metarank": Metarank,
    "baidu-ultr": BaiduUltr,
    "yandex": Yandex,
    "open-bandit": OpenBandit,
    "expedia": Expedia,
}


def find_reader(name: str | None, source: str) -> Reader:
    """Return the reader of this name; where none is named, what the source tells."""
    if name is not None:
        return READERS[choice("reader", name, READERS)]()
    return Ubi() if Ubi.is_there(source) else Plain()

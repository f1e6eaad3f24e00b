"""The sentence for each thing that can be wrong with LETOR text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from countersample.data.sources import shown
from countersample.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPECTED_ROW = "label qid:ID index:value …"


def letor_error(
    name: str, line: int, text: NDArray[np.uint8], start: int, at: int, status: int
) -> DataError:
    """Make the error for the kernel's `status` at byte `at` of the line that starts at `start`.

    Both are of the block `text`; `line` is the number of that line in the file, from 1.
    """
    from countersample._kernels import letor as kernel  # noqa: PLC0415 (imports numba)

    before = text[start:at].tobytes()
    rest = text[at : at + 1000].tobytes().split(b"\n")[0].rstrip(b"\r")
    if b"\0" in before + rest:
        return DataError(f"{name}:{line}: a zero byte: this is a binary file, expected LETOR text")
    column = len(before.decode(errors="replace")) + 1
    token = re.split(rb"[ \t#]", rest)[0].decode(errors="replace")
    found = shown(token) if token else "the end of the line"
    number = token.split(":")[0]
    previous = re.findall(rb"[ \t](\d+):", before)
    last = previous[-1].decode() if previous else ""
    sentence = {
        kernel.BAD_LABEL: f"expected a label (a number), found {found}",
        kernel.BAD_QID: f"expected qid:ID after the label, found {found}",
        kernel.UNEXPECTED_QID: f"expected index:value, found {found}: with a group file the rows "
        "must not name queries",
        kernel.BAD_FEATURE: f"expected index:value, found {found}",
        kernel.BAD_VALUE: f"expected a number after {last}:, found {found}",
        kernel.NOT_FINITE: f"{found} is beyond float32: expected a number below 3.4e38; "
        "clip=True (--clip) takes it as that",
        kernel.WRONG_ORDER: f"feature {number} after feature {last}: expected rising feature "
        "numbers",
        kernel.REPEATED: f"feature {number} is given twice",
        kernel.TOO_MANY_FEATURES: f"feature number {shown(number)} is above "
        f"{kernel.MAX_INDEX:,}, the most a dense row may have",
    }[status]
    is_not_finite = token.lower().lstrip("+-") in {"nan", "inf", "infinity"}
    if status in (kernel.BAD_LABEL, kernel.BAD_VALUE) and is_not_finite:
        sentence = (
            f"expected a finite number, found {found}: replace it or leave the row out; what "
            "is missing can be told in Parquet, CSV or TSV, as what LETOR text leaves out is 0"
        )
    return DataError(f"{name}:{line}:{column}: {sentence}")

"""Render results as text for a terminal, from ``templates/*.txt``, and group their warnings.

The page of `fit` is `page.py` with ``templates/fit.html``. The study renders its texts here, too,
from templates of its own.
"""

from __future__ import annotations

import re
from functools import cache, partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from countersample import _text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jinja2 import Environment

    Warnings = dict[str, tuple[str, ...]]  # by subject

SHOWN_WARNINGS = 3  # in a summary whose page has all of them
#: The subjects of warnings; those that can change the verdict most come first.
WARNING_SUBJECTS = (
    "Features that leak the evaluation clicks",
    "Rows of the log",
    "Position bias",
    "Evaluation",
    "Clicks and items that are left out",
    "Columns of the features",
)
LEAKAGE, ROWS, POSITION_BIAS, EVALUATION, LEFT_OUT, COLUMNS = WARNING_SUBJECTS
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_NUMBERS = re.compile(f"{_NUMBER}(?:(?:–|, | and ){_NUMBER})*")  # such as "1–3, 7"


@cache
def _environment(package: str) -> Environment:
    """Return the templates of a package, which may call the blocks of `countersample._text`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 (heavy)

    environment = Environment(  # noqa: S701 (plain text, not HTML)
        loader=PackageLoader(package), extensions=["jinja2.ext.do"],
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
    )  # fmt: skip
    environment.globals |= {"pairs": partial(_text.pairs, indent=0), "table": _text.table}
    environment.filters["paragraph"] = _text.paragraph
    return environment


def render_summary(
    template: str,
    package: str = str(__package__),
    **values: Any,  # noqa: ANN401 (of any result)
) -> str:
    """Return the text of a template with these values; warnings are paragraphs at its end."""
    text = _environment(package).get_template(template).render(values).strip("\n")
    warnings = _text.warning_paragraphs(values.get("warnings", ()))
    return "\n".join([text, "", *warnings] if warnings else [text])


def group_warnings(*groups: Mapping[str, Iterable[str]]) -> Warnings:
    """Return all warnings by subject, in the order of `WARNING_SUBJECTS`, each of them once.

    >>> group_warnings({EVALUATION: ["b"]}, {ROWS: ["a", "a"], LEAKAGE: []})
    {'Rows of the log': ('a',), 'Evaluation': ('b',)}
    """
    by_subject = {
        subject: tuple(dict.fromkeys(text for group in groups for text in group.get(subject, ())))
        for subject in WARNING_SUBJECTS
    }
    return {subject: texts for subject, texts in by_subject.items() if texts}


def mask_details(text: str) -> str:
    """Return a warning without its numbers, and without the names before its first colon.

    >>> mask_details("Propensities in a, b: 7 of 9 resamples left out")
    '# of # resamples left out'
    """
    return _NUMBERS.sub("#", text.partition(": ")[2] or text)


def merge_numbers(texts: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Merge texts that differ in numbers only; return each with the places of its texts.

    >>> merge_numbers(["5 of 9 clicks", "at 1–3, 7", "7 of 9 clicks"])
    [('5–7 of 9 clicks', [0, 2]), ('at 1–3, 7', [1])]
    """
    groups: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        groups.setdefault(_NUMBERS.sub("#", text), []).append(place)
    merged = []
    for places in groups.values():
        columns = zip(*(_NUMBERS.findall(texts[place]) for place in places), strict=True)
        words = _NUMBERS.split(texts[places[0]])
        ranges = map(_write_range, columns)
        merged.append(("".join(chain(*zip_longest(words, ranges, fillvalue=""))), places))
    return merged


def _write_range(lists: Sequence[str]) -> str:
    """Return a list of numbers if all are the same, or the range of all of their numbers."""
    if len(set(lists)) == 1:
        return lists[0]
    numbers = [number for text in lists for number in re.findall(_NUMBER, text)]
    numbers.sort(key=lambda text: float(text.replace(",", "")))
    return f"{numbers[0]}–{numbers[-1]}"

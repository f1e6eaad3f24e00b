"""The verdicts in a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countersample.study.findings.claims import Verdict


def summarize(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence on the paper's claims, and one on the questions beyond it.

    Examples
    --------
    >>> from countersample.study.findings.claims import Verdict
    >>> claim = "CounterSample has lower regret than IPS-SGD."
    >>> summarize([
    ...     Verdict("optimizers", "yahoo", claim, "paper", "confirmed", "By 20 %."),
    ...     Verdict("optimizers", "mq2008", claim, "paper", "not confirmed", "By 0 %."),
    ... ])  # doctest: +NORMALIZE_WHITESPACE
    ('The paper makes 1 claim that these results can speak to. Held against 2 datasets (yahoo,
    mq2008) that gives 2 verdicts: 1 confirmed, 0 in part, 1 not confirmed.',)
    """
    openings = {
        "paper": "The paper makes {claims} that these results can speak to.",
        "beyond": "Beyond the paper, {claims} were asked.",
    }
    sentences = []
    for source, opening in openings.items():
        given = [verdict for verdict in verdicts if verdict.source == source]
        if given:
            sentences.append(f"{_opening(opening, given, source)} {_tally(given)}")
    return tuple(sentences)


def _opening(opening: str, verdicts: Sequence[Verdict], source: str) -> str:
    n_claims = len({(verdict.study, verdict.claim) for verdict in verdicts})
    noun = "claim" if source == "paper" else "question"
    sentence = opening.format(claims=_count(n_claims, noun))
    return sentence if n_claims > 1 else sentence.replace(" were ", " was ")


def _tally(verdicts: Sequence[Verdict]) -> str:
    datasets = list(dict.fromkeys(verdict.dataset for verdict in verdicts if verdict.dataset))
    outcomes = ", ".join(
        f"{sum(verdict.outcome == outcome for verdict in verdicts)} {outcome}"
        for outcome in ("confirmed", "in part", "not confirmed")
    )
    on = f"Held against {_count(len(datasets), 'dataset')} ({', '.join(datasets)}) that gives"
    beginning = on if datasets else "That gives"  # the toy example and the like need no dataset
    return f"{beginning} {_count(len(verdicts), 'verdict')}: {outcomes}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

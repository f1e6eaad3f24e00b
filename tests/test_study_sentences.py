"""Every claim of the paper is tested by a study, and the documentation says by which."""

import re
from pathlib import Path

import pytest

from countersample.study.design import grids
from countersample.study.kinds import load_grid

PAGE = Path(__file__).parents[1] / "docs" / "study.md"
ROW = re.compile(r"\| .+? \| `([\w-]+)` \| (.+) \|")


@pytest.fixture(scope="module")
def listed():
    """Study and claim of each row of the table."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("## Every claim of the paper")[1].split("\n## ")[0]
    return [found.groups() for line in section.splitlines() if (found := ROW.fullmatch(line))]


def claims_of(study):
    grid = load_grid(grids.path_of(study))
    return {claim.text: claim.source for claim in grid.claims}


def test_every_row_is_a_claim_of_its_study(listed):
    assert len(listed) > 25
    for study, claim in listed:
        known = claims_of(study)
        assert not known or claim in known, f"{study}: {claim}"


def test_every_claim_of_the_paper_has_its_row(listed):
    for study in grids.names():
        for claim, source in claims_of(study).items():
            assert source == "beyond" or (study, claim) in listed, f"{study}: {claim}"

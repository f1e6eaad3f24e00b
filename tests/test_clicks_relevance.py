"""The share of relevant items for simulated users, and warnings if it is too small."""

import json

import numpy as np
import pytest

from countersample import RankingDataset, save_letor, simulate_clicks
from countersample.clicks import FewRelevantWarning, simulate_impressions
from countersample.clicks.relevance import relevance_of, smallest_relevant


def dataset(**counts):
    """One query with so many items of each grade: ``dataset(of_0=97, of_4=3)``."""
    labels = np.repeat([float(name[3:]) for name in counts], list(counts.values()))
    features = np.arange(len(labels), dtype=float)[:, None]
    return RankingDataset.from_arrays(X=features, y=labels, qid=np.zeros(len(labels), int))


GRADES_TO_2 = dataset(of_0=80, of_1=14, of_2=6)
FEW_OF_3 = dataset(of_0=60, of_1=20, of_2=18, of_3=1, of_4=1)


class TestTheShare:
    @pytest.mark.parametrize(
        ("relevant", "share", "advice"), [(1, 0.4, 2), (2, 0.2, 2), (3, 0.02, 2), (4, 0.01, 2)]
    )
    def test_is_of_the_items_at_or_above_the_grade(self, relevant, share, advice):
        result = relevance_of(FEW_OF_3, relevant)
        assert np.isclose(result.share, share)
        assert result.advice == advice
        assert bool(result.warnings()) == (share < 0.03)

    def test_the_text_has_share_grades_and_what_to_give(self):
        (text,) = relevance_of(FEW_OF_3, 3).warnings("--relevant ")
        assert text == (
            "only 2 % of the items are relevant, clicks are mostly noise: --relevant 3, and "
            "labels are 0 (60 %), 1 (20 %), 2 (18 %), 3 (1 %) and 4 (1 %): give --relevant 2"
        )

    def test_no_advice_if_no_grade_would_do(self):
        (text,) = relevance_of(dataset(of_0=99, of_1=1), 3).warnings()
        assert text.endswith("labels are 0 (99 %) and 1 (1 %)")
        labels = np.linspace(0, 1, 200)
        data = RankingDataset.from_arrays(X=labels[:, None], y=labels, qid=np.zeros(200, int))
        (text,) = relevance_of(data, 3).warnings()  # many labels are not listed
        assert "labels go up to 1: give relevant=0.9748" in text  # 194/199: 6 of 200 items


def test_the_default_is_3_or_1_if_no_grade_reaches_it():
    assert smallest_relevant(FEW_OF_3) == 3
    assert smallest_relevant(GRADES_TO_2) == 1
    assert smallest_relevant(GRADES_TO_2, 2) == 2


class TestSimulations:
    @pytest.mark.parametrize("simulate", [simulate_clicks, simulate_impressions])
    def test_warn_where_none_is_relevant(self, simulate):
        with pytest.warns(FewRelevantWarning, match="every click is noise.*give relevant") as told:
            simulate(GRADES_TO_2, GRADES_TO_2.labels, 50, relevant=3, rng=0)
        assert told[0].filename == __file__


@pytest.fixture
def data(tmp_path):
    save_letor(GRADES_TO_2, tmp_path / "data.txt")
    return tmp_path / "data.txt"


@pytest.mark.parametrize("more", [(), ("--sessions", "20")])
def test_simulate_tells_and_carries_it(run, data, more):
    words = ("simulate", data, "-o", "log.parquet", "--clicks", "100", *more)
    assert "relevant from label 1 on" in run(*words)
    result = json.loads(run(*words, "--json"))
    assert (result["relevance"]["relevant"], result["warnings"]) == (1, [])
    told = run(*words, "--relevant", "3", told=True)
    assert told.startswith("countersample: no item is relevant, every click is noise")
    assert told.endswith("give --relevant 1\n")
    result = json.loads(run(*words, "--relevant", "3", "--json"))
    assert result["relevance"]["share"] == 0
    assert f"countersample: {result['warnings'][0]}\n" == told

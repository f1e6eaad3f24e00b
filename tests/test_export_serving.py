"""What a card says of serving: its example is right, its figures are there, many are summarised."""

import re

import numpy as np
import pytest
from html_pages import Page
from made_rankers import KINDS, NAMES, made, predict, ranker_of, some_trees

from countersample.export import export
from countersample.scorers import LinearScorer, NetworkScorer, TreesScorer


def card_of(ranker, tmp_path, **options):
    return export(ranker, tmp_path / "shop.onnx", to="onnx", **options).card.read_text()


def tables(card, title):
    """Return the tables of a section, as lists of rows of cells."""
    section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", card, re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r"(?:^\|.*\|$\n?)+", section, re.MULTILINE)
    cells = [[re.split(r"(?<!\\)\|", line)[1:-1] for line in each.splitlines()] for each in found]
    return section, [[[cell.strip() for cell in row] for row in each] for each in cells]


def example(card):
    return tables(card, "An example to check by hand")


def item(table, n_features, names=NAMES):
    """Return the features of the item that a table tells of."""
    at = {name.replace("_", "\\_"): index for index, name in enumerate(names)}
    row = np.zeros(n_features, np.float32)
    for name, value, *_ in table[2:]:
        if name in at:
            row[at[name]] = float(value)
    return row


def score_of(section):
    return float(re.search(r"Its score is \*\*(.*?)\*\*", section)[1])


class TestExample:
    @pytest.mark.parametrize("how", [None, "minmax", "standard", "root-minmax"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_item_has_this_score(self, kind, how, rng, tmp_path):
        ranker, _ = made(kind, how, rng)
        section, (table, *_) = example(card_of(ranker, tmp_path))
        row = item(table, len(NAMES))
        expected = predict(ranker, row[None])[0]
        assert np.isclose(score_of(section), expected, rtol=1e-5)

    @pytest.mark.parametrize("kind", KINDS)
    def test_by_query_there_are_three(self, kind, rng, tmp_path):
        ranker, _ = made(kind, "query-minmax", rng)
        section, (table, *_) = example(card_of(ranker, tmp_path, one_query=True))
        row = item(table, len(NAMES))
        ends = np.array([np.zeros(len(NAMES)), np.ones(len(NAMES))], np.float32)
        expected = predict(ranker, np.vstack([ends, row]))[-1]
        assert np.isclose(score_of(section), expected, rtol=1e-5)
        assert "one has 0 for each of these features, one has 1, and this is the third" in section

    def test_a_sum_of_products(self, rng, tmp_path):
        ranker, _ = made("linear", "standard", rng)
        section, (table,) = example(card_of(ranker, tmp_path))
        assert table[0] == ["feature", "value", "normalised", "weight", "product"]
        shift, scale = ranker.normalizer_.shift, ranker.normalizer_.scale
        products = []
        for index, (_, *numbers) in enumerate(table[2:-1]):
            value, normalised, weight, product = map(float, numbers)
            if scale[index]:
                by_hand = (value - shift[index]) / scale[index]
                assert np.isclose(normalised, by_hand, rtol=1e-3, atol=1e-3)
            assert np.isclose(product, normalised * weight, rtol=1e-4, atol=1e-8)
            products.append(product)
        assert table[-1][0] == "sum"
        assert np.isclose(float(table[-1][-1]), sum(products), rtol=1e-4, atol=1e-5)
        assert score_of(section) == float(table[-1][-1])

    @pytest.mark.parametrize("how", [None, "minmax"])
    def test_a_way_through_a_tree(self, how, rng, tmp_path):
        ranker, _ = made("boosted", how, rng)
        section, (values, way) = example(card_of(ranker, tmp_path))
        row = item(values, len(NAMES))
        for question, has, answer in way[2:]:
            name, threshold = question.split(" ≤ ")
            assert float(has) == pytest.approx(row[NAMES.index(name)], rel=1e-5)
            assert answer == ("yes" if float(has) <= float(threshold) else "no")
        trees = ranker.scorer_  # the first is a stump, and asks nothing
        parts = {"left": trees.left, "right": trees.right, "feature": trees.feature,
                 "threshold": trees.threshold, "value": trees.value}  # fmt: skip
        one = TreesScorer(trees.n_features, trees.roots[1:2], **parts)
        own = predict(ranker_of("boosted", one, names=NAMES, normalizer=ranker.normalizer_),
                      row[None])[0]  # fmt: skip
        assert float(re.search(r"There it ends with (\S+),", section)[1]) == pytest.approx(
            own, rel=1e-5
        )

    def test_trees_on_a_linear_part(self, rng, tmp_path):
        trees = some_trees(rng, [np.array([0.4, 0.6], np.float32)] * 3)
        scorer = TreesScorer.from_dict(trees.to_dict() | {"base": [1.0, -2.0, 0.5]})
        ranker = ranker_of("boosted", scorer, names=("a", "b", "c"))
        section, (table, _) = example(card_of(ranker, tmp_path))
        row = item(table, 3, names=("a", "b", "c"))
        assert float(table[-1][-1]) == pytest.approx(row @ [1.0, -2.0, 0.5])
        assert "trees is added to the sum above." in section
        assert np.isclose(score_of(section), predict(ranker, row[None])[0], rtol=1e-5)

    def test_trees_that_ask_nothing(self, rng, tmp_path):
        ranker = ranker_of("boosted", some_trees(rng, [[0.5]], n_trees=1), names=("a",))
        section, found = example(card_of(ranker, tmp_path))
        assert len(found) == 1
        assert score_of(section) == pytest.approx(ranker.scorer_.value[0], rel=1e-5)


class TestMany:
    @pytest.fixture(params=KINDS)
    def ranker(self, request, rng):
        n = 700
        scorer = {
            "linear": lambda: LinearScorer(rng.standard_normal(n)),
            "neural": lambda: NetworkScorer(
                (rng.standard_normal((4, n)).astype(np.float32),
                 rng.standard_normal((1, 4)).astype(np.float32)),
                (np.ones(4, np.float32), np.ones(1, np.float32)),
            ),
            "boosted": lambda: some_trees(rng, [np.array([0.3, 0.6], np.float32)] * n),
        }[request.param]()  # fmt: skip
        return ranker_of(request.param, scorer, names=None)

    def test_are_summarised(self, ranker, tmp_path):
        card = card_of(ranker, tmp_path)
        section, (*_, table) = tables(card, "Features")
        assert "700 features without names" in section
        assert len(table) == 2 + 10
        assert len(card.splitlines()) < 200
        page = export(ranker, tmp_path / "shop.onnx", to="onnx", card="html").card
        assert len(Page(page.read_text()).all("td")) < 300

    def test_the_item_has_this_score(self, ranker, tmp_path):
        section, (table, *_) = example(card_of(ranker, tmp_path))
        names = [f"feature {index}" for index in range(700)]
        row = item(table, 700, names)
        assert np.count_nonzero(row) == 10
        assert np.isclose(score_of(section), predict(ranker, row[None])[0], rtol=1e-5)
        assert "All other 690 features are 0." in section

    def test_those_with_names_are_listed(self, rng, tmp_path):
        names = [f"f{index}" for index in range(60)]
        ranker = ranker_of("linear", LinearScorer(rng.standard_normal(60)), names=names)
        _, (table,) = tables(card_of(ranker, tmp_path), "Features")
        assert [row[1] for row in table[2:]] == names

    def test_the_heaviest_of_a_linear_ranker(self, tmp_path):
        weights = np.full(50, 0.1)
        weights[[3, 40]] = -5, 2
        ranker = ranker_of("linear", LinearScorer(weights), names=None)
        _, (ranges, table) = tables(card_of(ranker, tmp_path), "Features")
        assert ranges[2:] == [["weight", "-5 to 2"]]
        assert {"3", "40"} <= {row[0] for row in table[2:]}


class TestNeeds:
    def test_of_a_ranker_that_normalises(self, rng, tmp_path):
        ranker, _ = made("linear", "minmax", rng)
        _, (table,) = tables(card_of(ranker, tmp_path), "What it needs")
        told = dict(table[2:])
        assert told["features"] == "7 numbers for each item, with the names below"
        assert told["missing values"].startswith("refused by the ranker")
        assert told["normalisation"] == (
            "minmax, which is a part of the model: send features as they are; each is (value − "
            "less) / divided by; 1 that did not vary are left out"
        )

    @pytest.mark.parametrize(
        ("how", "sentence"),
        [(None, "none: features count as they are"), ("query-minmax", "within each query")],
    )
    def test_of_others(self, how, sentence, rng, tmp_path):
        ranker, _ = made("linear", how, rng)
        card = card_of(ranker, tmp_path, one_query=how is not None)
        _, (table,) = tables(card, "What it needs")
        assert sentence in dict(table[2:])["normalisation"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_time_of_a_query(self, kind, rng, tmp_path):
        card = card_of(made(kind, "minmax", rng)[0], tmp_path)
        found = re.search(
            r"^(\S+) ms to score a query of 100 items: the median of \d+ calls of this ranker in "
            r"Python, when it was exported, on .+ \(\d+ cores?\)", card, re.MULTILINE,
        )  # fmt: skip
        assert float(found[1]) > 0

"""Folders of LETOR text: splits, folds, and LETOR's parts S1 to S5."""

import json

import pytest

from countersample import load_letor, synthetic
from countersample.data.labelled_files import load
from countersample.data.letor import find_layout, save_letor
from countersample.errors import DataError, ParameterError
from countersample.study.sources import find_source, load_fold

WHOLE = synthetic("tiny", n_queries=10, rng=0)
# Two queries in each of five parts.
PARTS = [WHOLE.subset([2 * k, 2 * k + 1]) for k in range(5)]


@pytest.fixture
def letor(tmp_path):
    """A folder as LETOR 3.0 and MQ2008 have it: five parts, one compressed, and two other files."""
    folder = tmp_path / "letor"
    (folder / "docs").mkdir(parents=True)
    for k, part in enumerate(PARTS, start=1):
        save_letor(part, folder / (f"S{k}.txt" if k < 5 else "S5.txt.xz"))
    (folder / "published.csv").write_text("a,b\n")
    return folder


def queries(dataset):
    return dataset.query_ids.tolist()


def of_parts(*numbers):
    return [query for k in numbers for query in queries(PARTS[k - 1])]


def part_names(folder, fold):
    """The parts for training, validation and test."""
    files = find_layout(folder).files(fold)
    return [" ".join(path.name[:2] for path in files[split]) for split in ("train", "vali", "test")]


class TestLetorsParts:
    def test_folds_rotate_as_in_letors_readme(self, letor):
        assert [part_names(letor, fold) for fold in range(1, 6)] == [
            ["S1 S2 S3", "S4", "S5"],
            ["S2 S3 S4", "S5", "S1"],
            ["S3 S4 S5", "S1", "S2"],
            ["S4 S5 S1", "S2", "S3"],
            ["S5 S1 S2", "S3", "S4"],
        ]

    def test_a_fold_is_read(self, letor):
        parts = load_letor(letor, fold=3)
        assert {name: queries(part) for name, part in parts.items()} == {
            "train": of_parts(3, 4, 5), "vali": of_parts(1), "test": of_parts(2)
        }  # fmt: skip
        assert len({part.n_features for part in parts.values()}) == 1
        assert load(letor, fold=3) == parts

    @pytest.mark.parametrize(
        ("names", "said"),
        [
            (["S1.txt", "S2.txt", "S4.txt"], "has S1, S2 and S4, expected S1, S2, S3, …"),
            (["S1.txt", "S2.txt"], "has S1 and S2, expected"),
            (["S1.txt", "S1.dat", "S2.txt", "S3.txt"], "both S1.dat and S1.txt look like S1"),
            (["notes.txt"], "no files named train, vali or test"),
            (["Fold1/train.txt", "fold_01/train.txt"], "both Fold1 and fold_01 look like fold 1"),
            (["set1.train.txt", "set2.train.txt"], "both set1.train.txt and set2.train.txt"),
        ],
    )
    def test_names_that_are_ambiguous_or_incomplete(self, tmp_path, names, said):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("1 qid:1 1:1\n")
        with pytest.raises(DataError, match=said):
            load_letor(tmp_path)


class TestWhichFilesAreRead:
    def test_a_folder_that_cannot_be_read(self, tmp_path, monkeypatch):
        def fail(_):  # as for an ordinary user: root may read everything
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(type(tmp_path), "iterdir", fail)
        with pytest.raises(DataError, match="cannot be read: Permission denied"):
            load_letor(tmp_path)

    def test_folds_go_before_parts_and_splits_before_both(self, letor):
        for k in (1, 2):
            (letor / f"Fold{k}").mkdir()
            save_letor(PARTS[k - 1], letor / f"Fold{k}" / "train.txt")
            save_letor(PARTS[k], letor / f"Fold{k}" / "test.txt")
        assert sorted(find_layout(letor).folds) == [1, 2]
        assert queries(load_letor(letor, fold=2)["train"]) == of_parts(2)
        save_letor(PARTS[4], letor / "train.txt")
        assert list(load_letor(letor)) == ["train"]

    def test_a_fold_that_there_is_not(self, letor, tmp_path):
        with pytest.raises(ParameterError, match="fold is 6, expected 1, 2, 3, 4 or 5"):
            load_letor(letor, fold=6)
        with pytest.raises(ParameterError, match="fold=1 goes with a folder"):
            load_letor(letor / "S1.txt", fold=1)
        (tmp_path / "plain").mkdir()
        save_letor(WHOLE, tmp_path / "plain" / "train.txt")
        with pytest.raises(ParameterError, match="has no folds"):
            load_letor(tmp_path / "plain", fold=1)


class TestStudies:
    def test_every_fold_or_the_one_asked_for(self, letor):
        source = find_source(str(letor))
        assert [fold.name for fold in source.folds] == [f"Fold{k}" for k in range(1, 6)]
        assert source.notes == ()
        (fold,) = find_source(str(letor), fold=4).folds
        assert fold.config == source.folds[3].config
        parts = load_fold(fold.config)
        assert [queries(part) for part in parts] == [of_parts(4, 5, 1), of_parts(2), of_parts(3)]

    def test_the_name_of_a_folder_does_not_make_it_one_of_the_papers_sets(self, letor):
        folder = letor.rename(letor.parent / "istella-s")
        assert find_source(str(folder)).name == "istella-s (another)"
        assert find_source("istella-s", data_dir=folder.parent).name == "istella-s (another)"

    def test_a_fold_of_what_has_none(self):
        with pytest.raises(ParameterError, match="tiny has no folds"):
            find_source("tiny", fold=1)


def test_commands_say_what_they_read(run, letor, tmp_path):
    """`simulate`, `train`, `evaluate` on one fold; the names of files go to the error stream."""
    log, ranker = tmp_path / "log.parquet", tmp_path / "ranker.json"
    fold = ("--fold", "2")
    for words in (
        ("simulate", letor, "-o", log, "--clicks", "300", *fold),
        ("train", letor, log, "-o", ranker, "--learning-rate", "0.01", "--steps", "50", *fold),
        ("evaluate", ranker, letor, *fold),
        ("rank", ranker, letor, "-o", tmp_path / "ranked.tsv", *fold),
    ):
        told = run(*words, told=True)
        assert "fold 2 of 5 is read (train is S2.txt, S3.txt and S4.txt" in told
    assert list(json.loads(run("evaluate", ranker, letor, "--json", *fold))) == [
        "train", "vali", "test"
    ]  # fmt: skip
    result = json.loads(run("data", "info", letor, "--json", *fold))
    assert [result[part]["n_queries"] for part in ("train", "vali", "test")] == [6, 2, 2]

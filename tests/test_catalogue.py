"""The catalogue of known sets: its data, where a set is looked for, what a copy is checked for."""

import dataclasses
import gzip
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import platformdirs
import pytest

from countersample.data import RankingDataset, catalogue
from countersample.data.catalogue import KnownDataset, KnownFile, Statistics
from countersample.errors import DataError, ParameterError

ROOT = Path(__file__).parents[1]
NAMES = (
    "yahoo-set1",
    "yahoo-set2",
    "istella",
    "istella-s",
    "istella-x",
    "mslr-web10k",
    "mslr-web30k",
    "mq2007",
    "mq2008",
)

TRAIN = "2 qid:1 1:0.5 3:1\n0 qid:1 2:0.25\n1 qid:2 1:1\n"
TEST = "0 qid:3 1:0.5\n1 qid:3 2:1\n"


def load(path: Path) -> RankingDataset:
    """Read LETOR text the slow and obvious way."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [line.split("#")[0].split() for line in content.decode().splitlines()]
    pairs = [{int(k): float(v) for k, v in (f.split(":") for f in row[2:])} for row in rows]
    features = np.zeros((len(rows), max(max(pair) for pair in pairs)), np.float32)
    for i, pair in enumerate(pairs):
        for number, value in pair.items():
            features[i, number - 1] = value
    return RankingDataset.from_arrays(
        features, [float(row[0]) for row in rows], [row[1] for row in rows]
    )


def must_not_load(path: Path) -> RankingDataset:
    raise AssertionError(path)


def tiny(*files: KnownFile, statistics: Statistics) -> KnownDataset:
    return KnownDataset(
        name="tiny",
        title="Tiny",
        aliases=("TINY-2020",),
        summary="Two files.",
        homepage="https://example.org/tiny",
        how_to_get="ask for it",
        licence="Free.",
        citation="Nobody. 2020.",
        statistics=statistics,
        files=files,
    )


@pytest.fixture
def expect(monkeypatch):
    """Replace the catalogue by one set of two files, of which TRAIN and TEST are a right copy."""

    def put(sha256: str | None = None, **changes: int) -> None:
        figures = {"queries": 3, "items": 5, "features": 3, "highest_grade": 2} | changes
        dataset = tiny(
            KnownFile("Fold1/train.txt", "train", 1, queries=2, items=3, sha256=sha256),
            KnownFile("Fold1/test.txt", "test", 1),
            statistics=Statistics(**figures),
        )
        monkeypatch.setattr(catalogue, "known", lambda: {"tiny": dataset})

    put()
    return put


@pytest.fixture
def copy(tmp_path, expect):  # noqa: ARG001 (the catalogue has to be the tiny one)
    folder = tmp_path / "tiny"
    (folder / "Fold1").mkdir(parents=True)
    (folder / "Fold1" / "train.txt").write_text(TRAIN)
    (folder / "Fold1" / "test.txt").write_text(TEST)
    return folder


@pytest.fixture
def no_places(tmp_path, monkeypatch):
    """A machine where no place holds anything; returns the platform's data folder."""
    platform = tmp_path / "platform"
    monkeypatch.delenv("COUNTERSAMPLE_DATA", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: platform)
    return platform / "datasets"


# -- the data ----------------------------------------------------------------------------------


def test_the_known_sets():
    assert tuple(catalogue.known()) == NAMES


@pytest.mark.parametrize("each", [*catalogue.known().values(), *catalogue.known_logs().values()])
def test_an_entry_is_complete(each):
    for sentence in (each.summary, each.licence, each.citation):
        assert sentence == sentence.strip()
        assert sentence.endswith(".")
    assert each.homepage.startswith("https://")
    assert each.how_to_get[0].islower()  # it is part of a sentence
    assert not each.how_to_get.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_files_are_complete(name):
    dataset = catalogue.get(name)
    assert min(dataclasses.astuple(dataset.statistics)) > 0
    paths = [file.path for file in dataset.files]
    assert len(set(paths)) == len(paths)
    for file in dataset.files:
        assert not Path(file.path).is_absolute()
        assert ".." not in Path(file.path).parts
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert (file.fold is not None) == file.path.startswith(f"Fold{file.fold}/")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("figure", ["queries", "items"])
def test_the_files_of_a_fold_sum_to_the_total(name, figure):
    dataset = catalogue.get(name)
    total = getattr(dataset.statistics, figure)
    for fold in {file.fold for file in dataset.files}:
        known = [getattr(file, figure) for file in dataset.files if file.fold == fold]
        parts = [count for count in known if count is not None]
        assert sum(parts) == total if len(parts) == len(known) else sum(parts) < total


def test_the_documentation_names_every_set_and_where_to_get_it():
    text = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    for dataset in catalogue.known().values():
        assert f"`{dataset.name}`" in text
        assert dataset.homepage in text
        assert f"{dataset.statistics.items:,}" in text
    for log in catalogue.known_logs().values():
        for said in (f"`{log.name}`", f"`{log.reader}`", log.title, log.size, f"<{log.homepage}>"):
            assert said in text
        assert log.licence[1:-1] in text


def test_click_logs_are_not_labelled_data(no_places):
    assert {log.kind for log in catalogue.known_logs().values()} == {"click log"}
    with pytest.raises(ParameterError, match=r"expedia is a click log, .* --reader expedia"):
        catalogue.get("expedia")
    with pytest.raises(DataError, match="accept the rules, download the data"):
        catalogue.find("expedia")
    (no_places / "expedia-personalized-sort").mkdir(parents=True)
    assert catalogue.find("expedia").name == "expedia-personalized-sort"


def test_click_logs_on_the_command_line(run):
    listed = run("data", "list")
    for name, log in catalogue.known_logs().items():
        described = run("data", "info", name)
        assert f"--reader {log.reader}" in described
        for text in (log.homepage, log.licence):
            assert text in described
            assert text in listed


def test_listed_as_json_every_set_tells_its_kind(run):
    rows = json.loads(run("data", "list", "--json"))
    kinds = [row["kind"] for row in rows]
    n_logs = len(catalogue.known_logs())
    assert kinds == ["labelled data"] * len(NAMES) + ["click log"] * n_logs
    assert [row["name"] for row in rows][: len(NAMES)] == list(NAMES)


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(ParameterError, match=r"did you mean mslr-web10k\?.*yahoo-set1, yahoo-set2"):
        catalogue.get("MSLR-WEB10")
    with pytest.raises(ParameterError, match="no known dataset 'x', expected one of"):
        catalogue.get("x")


# -- find --------------------------------------------------------------------------------------


def test_find_looks_in_the_given_folder_then_the_environment_then_the_platform(
    tmp_path, monkeypatch, no_places
):
    first, second, third = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    monkeypatch.setenv("COUNTERSAMPLE_DATA", f"{second}{os.pathsep}{third}")
    for place in (no_places, third, second, first):
        (place / "mq2008").mkdir(parents=True)
        assert catalogue.find("mq2008", first) == place / "mq2008"
    assert catalogue.find("mq2008") == second / "mq2008"


def test_find_takes_the_name_of_the_archive_too(tmp_path, no_places):  # noqa: ARG001
    (tmp_path / "MSLR-WEB10K").mkdir()
    assert catalogue.find("mslr-web10k", tmp_path).name == "MSLR-WEB10K"
    (tmp_path / "mslr-web10k").mkdir()
    assert catalogue.find("mslr-web10k", tmp_path).name == "mslr-web10k"


def test_find_says_where_it_looked_and_how_to_get_the_set(tmp_path, monkeypatch, no_places):
    monkeypatch.setenv("COUNTERSAMPLE_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError) as error:
        catalogue.find("istella-s", tmp_path / "given")
    message = str(error.value)
    assert f"{tmp_path / 'given'}, {tmp_path / 'env'} or {no_places};" in message
    assert "https://istella.ai/datasets/letor-dataset/" in message
    assert "accept the licence agreement" in message
    with pytest.raises(ParameterError, match="did you mean istella"):
        catalogue.find("istela")


# -- recognise ---------------------------------------------------------------------------------


class Counted:
    """As much of a dataset as it takes to recognise it."""

    def __init__(self, n_queries, n_items, n_features):
        self.n_queries, self.n_items, self.n_features = n_queries, n_items, n_features


def counted(name, fold=None, **changes):
    dataset = catalogue.get(name)
    return {
        file.split: Counted(
            file.queries + changes.get("queries", 0),
            (file.items or 1) + changes.get("items", 0),
            dataset.statistics.features + changes.get("features", 0),
        )
        for file in dataset.files
        if file.fold == fold
    }


@pytest.mark.parametrize("name", ["yahoo-set1", "yahoo-set2", "istella", "istella-s"])
def test_a_set_is_recognised_by_what_it_holds(name):
    assert catalogue.recognise(counted(name)) == catalogue.get(name)
    for change in ("queries", "items", "features"):
        assert catalogue.recognise(counted(name, **{change: 1})) is None
    parts = counted(name)
    parts.pop("test")
    assert catalogue.recognise(parts) is None


@pytest.mark.parametrize("fold", range(1, 6))
@pytest.mark.parametrize("name", ["mslr-web10k", "mslr-web30k"])
def test_a_fold_is_recognised(name, fold):
    assert catalogue.recognise(counted(name, fold)) == catalogue.get(name)


# -- identify ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_with_the_files_and_the_name_is_the_set(name, tmp_path):
    folder = tmp_path / name.upper()
    for file in catalogue.get(name).files[:1]:
        (folder / file.path).parent.mkdir(parents=True)
        (folder / f"{file.path}.xz").touch()
    assert catalogue.identify(folder) == catalogue.get(name)


def test_a_folder_of_another_name_is_not_identified(tmp_path):
    for name in ("train.txt", "vali.txt", "test.txt"):
        (tmp_path / name).touch()
    assert catalogue.identify(tmp_path) is None


def test_two_sets_in_one_folder_cannot_be_told(tmp_path):
    folder = tmp_path / "ltrc_yahoo"
    folder.mkdir()
    (folder / "set1.train.txt").touch()
    assert catalogue.identify(folder) == catalogue.get("yahoo-set1")
    (folder / "set2.train.txt").touch()
    assert catalogue.identify(folder) is None


# -- verify ------------------------------------------------------------------------------------


def test_a_right_copy_is_ok(copy):
    result = catalogue.verify(copy, load=load)
    assert result.ok
    values = result.to_dict()
    assert (values["name"], values["folder"], values["ok"]) == ("tiny", str(copy), True)
    assert [check["subject"] for check in values["checks"]] == [
        "Fold1/train.txt", "Fold1/test.txt", "all files of fold 1"
    ]  # fmt: skip
    message = "Has 1 queries, 2 items and 2 features, as it should."
    assert values["checks"][1]["message"] == message
    assert "is as it should be for tiny" in result.summary()


def test_a_compressed_file_is_as_good(copy):
    plain = copy / "Fold1" / "train.txt"
    (copy / "Fold1" / "train.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    result = catalogue.verify(copy, load=load)
    assert result.ok
    assert result.checks[0].subject == "Fold1/train.txt.gz"


def test_a_missing_file_is_missing(copy):
    (copy / "Fold1" / "test.txt").unlink()
    result = catalogue.verify(copy, load=load)
    assert not result.ok
    assert [check.status for check in result.checks] == ["ok", "missing"]
    assert result.checks[1].message == "Is not there, nor compressed as .gz, .bz2, .xz or .zst."


def test_a_wrong_count_is_wrong_in_its_file_and_in_its_fold(copy):
    (copy / "Fold1" / "train.txt").write_text(TRAIN + "0 qid:2 1:1\n")
    train, test, fold = catalogue.verify(copy, load=load).checks
    assert (train.status, train.message) == ("wrong", "Has 4 items instead of 3.")
    assert test.status == "ok"
    assert (fold.status, fold.message) == ("wrong", "Has 6 items instead of 5.")


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"features": 2}, ["Has 3 features instead of 2."] * 2),
        ({"features": 4}, ["Has 3 features instead of 4."]),
        ({"highest_grade": 1}, ["Has grades 0 to 2 instead of 0 to 1."]),
        ({"queries": 7, "items": 9}, ["Has 3 queries instead of 7 and 5 items instead of 9."]),
    ],
)
def test_other_figures_are_wrong(copy, expect, changes, messages):
    expect(**changes)
    checks = catalogue.verify(copy, load=load).checks
    assert [check.message for check in checks if check.status == "wrong"] == messages


def test_a_known_checksum_settles_it_without_reading(copy, expect):
    expect(sha256=hashlib.sha256(TRAIN.encode()).hexdigest())
    (copy / "Fold1" / "test.txt").unlink()
    train, test = catalogue.verify(copy, load=must_not_load).checks
    assert (train.status, train.message) == ("ok", "Is the published file, by its checksum.")
    assert test.status == "missing"


def test_another_checksum_is_wrong_whatever_the_counts(copy, expect):
    expect(sha256="0" * 64)
    train, *others = catalogue.verify(copy, load=load).checks
    assert train.status == "wrong"
    assert train.message == "Has a checksum that is not the published file's."
    assert [check.status for check in others] == ["ok", "ok"]


def test_a_file_that_cannot_be_read_is_wrong(copy):
    def refuse(path: Path) -> RankingDataset:
        raise DataError(f"{path.name}, line 1: no label")

    checks = catalogue.verify(copy, load=refuse).checks
    assert [check.status for check in checks] == ["wrong", "wrong"]
    assert checks[0].message == "Cannot be read: train.txt, line 1: no label."


def test_folders_that_cannot_be_verified(copy, tmp_path):
    elsewhere = copy.rename(copy.with_name("elsewhere"))
    with pytest.raises(DataError, match="cannot be identified"):
        catalogue.verify(elsewhere, load=load)
    assert catalogue.verify(elsewhere, "tiny", load=load).ok
    with pytest.raises(DataError, match="is not a folder"):
        catalogue.verify(tmp_path / "nowhere", "mq2008")


def test_the_real_mq2008_is_right(shared, tmp_path):
    folder = tmp_path / "mq2008"
    script = shared / "make_folds.sh"
    subprocess.run(["/bin/sh", script, shared / "mq2008", folder], check=True)
    result = catalogue.verify(folder)
    assert result.name == "mq2008"
    assert result.ok, [check for check in result.checks if check.status != "ok"]
    assert len(result.checks) == 5 * (3 + 1)  # the files of each fold, and the fold

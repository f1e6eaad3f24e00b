"""The catalogue of known sets: its entries, where a copy is searched, how a copy is checked."""

import dataclasses
import gzip
import hashlib
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest

from countersample.data import catalogue
from countersample.data.catalogue import KnownDataset, KnownFile, Statistics
from countersample.errors import DataError, ParameterError

ROOT = Path(__file__).parents[1]
TRAIN = "2 qid:1 1:0.5 3:1\n0 qid:1 2:0.25\n1 qid:2 1:1\n"
TEST = "0 qid:3 1:0.5\n1 qid:3 2:1\n"


@pytest.fixture
def expect(monkeypatch):
    """Replace the catalogue by one set of two files; TRAIN and TEST are a correct copy."""

    def replace(sha256: str | None = None, **changes: int) -> None:
        figures = {"queries": 3, "items": 5, "features": 3, "highest_grade": 2} | changes
        dataset = KnownDataset(
            name="tiny", title="Tiny", aliases=(), summary="Two files.", citation="Nobody. 2020.",
            homepage="https://example.org", how_to_get="ask for it", licence="Free.",
            statistics=Statistics(**figures),
            files=(
                KnownFile("Fold1/train.txt", "train", 1, queries=2, items=3, sha256=sha256),
                KnownFile("Fold1/test.txt", "test", 1),
            ),
        )  # fmt: skip
        monkeypatch.setattr(catalogue, "known", lambda: {"tiny": dataset})

    replace()
    return replace


@pytest.fixture
def copy(tmp_path, expect):  # noqa: ARG001 (the catalogue has to be the tiny one)
    folder = tmp_path / "tiny"
    (folder / "Fold1").mkdir(parents=True)
    (folder / "Fold1" / "train.txt").write_text(TRAIN)
    (folder / "Fold1" / "test.txt").write_text(TEST)
    return folder


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Return the platform's data folder of a machine without any dataset."""
    monkeypatch.delenv("COUNTERSAMPLE_DATA", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *_, **__: tmp_path / "platform")
    return tmp_path / "platform" / "datasets"


# -- entries -----------------------------------------------------------------------------------


def test_every_entry_is_complete():
    for each in [*catalogue.known().values(), *catalogue.known_logs().values()]:
        assert all(text.endswith(".") for text in (each.summary, each.licence, each.citation))
        assert each.homepage.startswith("https://")
        assert each.how_to_get[0].islower()  # it is part of a sentence
        assert not each.how_to_get.endswith(".")


def test_files_are_within_their_folder_and_add_up():
    for dataset in catalogue.known().values():
        assert min(dataclasses.astuple(dataset.statistics)) > 0
        assert len({file.path for file in dataset.files}) == len(dataset.files)
        for file in dataset.files:
            assert not Path(file.path).is_absolute()
            assert ".." not in Path(file.path).parts
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert (file.fold is not None) == file.path.startswith(f"Fold{file.fold}/")
        for fold in {file.fold for file in dataset.files}:
            files = [file for file in dataset.files if file.fold == fold]
            for figure in ("queries", "items"):
                total = getattr(dataset.statistics, figure)
                counts = [getattr(file, figure) for file in files]
                known = [count for count in counts if count is not None]
                assert sum(known) == total if known == counts else sum(known) < total


def test_the_documentation_names_every_set_and_its_source():
    text = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    for dataset in catalogue.known().values():
        for part in (f"`{dataset.name}`", dataset.homepage, f"{dataset.statistics.items:,}"):
            assert part in text
    for log in catalogue.known_logs().values():
        for part in (f"`{log.name}`", f"`{log.reader}`", log.title, log.size, f"<{log.homepage}>"):
            assert part in text
        assert log.licence[1:-1] in text


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(ParameterError, match=r"did you mean mslr-web10k\?.*yahoo-set1, yahoo-set2"):
        catalogue.get("MSLR-WEB10")
    with pytest.raises(ParameterError, match="no known dataset 'x', expected one of"):
        catalogue.get("x")


# -- copies on this machine --------------------------------------------------------------------


def test_the_argument_goes_before_the_environment_and_the_platform(
    tmp_path, monkeypatch, data_folder
):
    first, second, third = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    monkeypatch.setenv("COUNTERSAMPLE_DATA", f"{second}{os.pathsep}{third}")
    for place in (data_folder, third, second, first):
        (place / "mq2008").mkdir(parents=True)
        assert catalogue.find("mq2008", first) == place / "mq2008"
    assert catalogue.find("mq2008") == second / "mq2008"


def test_the_error_lists_the_folders_and_the_source(tmp_path, monkeypatch, data_folder):
    monkeypatch.setenv("COUNTERSAMPLE_DATA", str(tmp_path / "env"))
    with pytest.raises(DataError) as error:
        catalogue.find("istella-s", tmp_path / "given")
    message = str(error.value)
    assert f"{tmp_path / 'given'}, {tmp_path / 'env'} or {data_folder};" in message
    assert "https://istella.ai/datasets/letor-dataset/, read and accept the licence" in message


def test_click_logs_are_found_but_not_verified(tmp_path, data_folder):
    (data_folder / "expedia-personalized-sort").mkdir(parents=True)
    assert catalogue.find("expedia").name == "expedia-personalized-sort"
    with pytest.raises(ParameterError, match=r"expedia is a click log, .* --reader expedia"):
        catalogue.verify(tmp_path, "expedia")


# -- which set it is ---------------------------------------------------------------------------


def sizes_of(name, fold):
    """Return the sizes of each split of a set, as datasets have them."""
    dataset = catalogue.get(name)
    features = dataset.statistics.features
    return {
        file.split: SimpleNamespace(
            n_queries=file.queries, n_items=file.items or 1, n_features=features
        )
        for file in dataset.files
        if file.fold == fold
    }


@pytest.mark.parametrize("name", ["yahoo-set1", "mslr-web30k"])
def test_a_set_is_recognised_by_its_sizes(name):
    parts = sizes_of(name, None if name == "yahoo-set1" else 5)
    assert catalogue.recognise(parts) == catalogue.get(name)
    parts.pop("test")
    assert catalogue.recognise(parts) is None


def test_a_folder_is_identified_by_its_name_and_files(tmp_path):
    for name, dataset in catalogue.known().items():
        folder = tmp_path / name.upper()
        path = folder / f"{dataset.files[0].path}.xz"
        path.parent.mkdir(parents=True)
        path.touch()
        assert catalogue.identify(folder) == dataset
        assert catalogue.identify(folder.rename(tmp_path / f"copy of {name}")) is None


# -- verification ------------------------------------------------------------------------------


def test_a_correct_copy(copy):
    plain = copy / "Fold1" / "train.txt"
    (copy / "Fold1" / "train.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    result = catalogue.verify(copy)
    values = result.to_dict()
    assert (values["name"], values["folder"], values["ok"]) == ("tiny", str(copy), True)
    assert [check["subject"] for check in values["checks"]] == [
        "Fold1/train.txt.gz", "Fold1/test.txt", "all files of fold 1"
    ]  # fmt: skip
    assert result.checks[1].message == "Has 1 queries, 2 items and 2 features, as published."
    assert "is a complete copy of tiny" in result.summary()


@pytest.mark.parametrize(
    ("train", "test", "messages"),
    [
        (TRAIN, None, ["Is missing, also compressed as .gz, .bz2, .xz or .zst."]),
        (
            TRAIN + "0 qid:2 1:1\n",
            TEST,
            ["Has 4 items instead of 3.", "Has 6 items instead of 5."],  # in the file, in the fold
        ),
        ("no label\n", TEST, ["Cannot be read: "]),
    ],
)
def test_what_is_wrong_with_files_is_reported(copy, train, test, messages):
    (copy / "Fold1" / "test.txt").unlink()
    for name, text in (("train", train), ("test", test)):
        if text is not None:
            (copy / "Fold1" / f"{name}.txt").write_text(text)
    wrong = [check.message for check in catalogue.verify(copy).checks if check.status != "ok"]
    assert len(wrong) == len(messages)
    assert all(map(str.startswith, wrong, messages))


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"features": 2}, ["Has 3 features instead of 2."] * 2),
        ({"features": 4}, ["Has 3 features instead of 4."]),
        ({"highest_grade": 1}, ["Has grades 0 to 2 instead of 0 to 1."]),
        ({"queries": 7, "items": 9}, ["Has 3 queries instead of 7 and 5 items instead of 9."]),
        ({"sha256": "0" * 64}, ["Has a checksum that is not the published file's."]),
    ],
)
def test_other_figures_are_wrong(copy, expect, changes, messages):
    expect(**changes)
    checks = catalogue.verify(copy).checks
    assert [check.message for check in checks if check.status == "wrong"] == messages


def test_a_published_checksum_is_enough(copy, expect, monkeypatch):
    expect(sha256=hashlib.sha256(TRAIN.encode()).hexdigest())
    (copy / "Fold1" / "test.txt").unlink()
    monkeypatch.delattr(catalogue, "load_letor")  # no file is read
    train, test = catalogue.verify(copy).checks
    assert (train.status, train.message) == ("ok", "Is the published file, by its checksum.")
    assert test.status == "missing"


def test_folders_that_cannot_be_verified(copy, tmp_path):
    other = copy.rename(copy.with_name("other"))
    with pytest.raises(DataError, match="cannot be identified"):
        catalogue.verify(other)
    assert catalogue.verify(other, "tiny").ok
    with pytest.raises(DataError, match="is not a folder"):
        catalogue.verify(tmp_path / "nowhere", "mq2008")


def test_the_real_mq2008_is_correct(shared, tmp_path):
    folder = tmp_path / "mq2008"
    script = shared / "make_folds.sh"
    subprocess.run(["/bin/sh", script, shared / "mq2008", folder], check=True)
    result = catalogue.verify(folder)
    assert result.name == "mq2008"
    assert result.ok, [check for check in result.checks if check.status != "ok"]
    assert len(result.checks) == 5 * (3 + 1)  # the files of each fold, and the fold

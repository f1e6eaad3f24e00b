"""Rows of a results file are judged as the study that wrote them was."""

import json

import invoking
import pyarrow as pa
import pytest
from conftest import ROOT
from pyarrow import parquet

from countersample.errors import DataError
from countersample.study.judging import judge_file

PUBLISHED = ROOT / "docs" / "results" / "medium.parquet"
STUDIES = ("optimizers", "clicks")  # values that are texts; numbers that a scale changes


def invoke(*arguments):
    found = invoking.invoke(*arguments)
    assert found.exit_code == 0, found.output
    return found


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Folder and what was printed of a study."""
    folder = tmp_path_factory.mktemp("judging") / "results"
    asked = ("--scale", "smoke", "--data", "tiny", "--set", "seeds=2", "--json")
    found = invoke("reproduce", *STUDIES, *asked, "--out", folder)
    return folder / "results.parquet", json.loads(found.stdout)


@pytest.fixture
def rows():
    """Rows of one study on one dataset."""
    table = parquet.read_table(PUBLISHED)
    return table.filter(
        [
            study == "optimizers" and dataset == "yahoo-like"
            for study, dataset in zip(
                table["study"].to_pylist(), table["dataset"].to_pylist(), strict=True
            )
        ]
    )


def written(rows, tmp_path):
    parquet.write_table(rows, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_verdicts_are_those_of_the_run(smoke):
    path, printed = smoke
    judged = json.loads(invoke("study", "claims", path, "--json").stdout)
    assert judged["verdicts"] == printed["verdicts"]
    assert len(judged["verdicts"]) > 10
    assert judged["left_out"] == []


def test_tables_are_those_of_the_run(smoke):
    path, printed = smoke
    judged = json.loads(invoke("study", "claims", path, "--json").stdout)
    regret = [table for table in judged["tables"] if table["name"].endswith("-regret")]
    assert regret == printed["tables"]


def test_figures_and_tables_are_written_from_the_rows(smoke, tmp_path):
    path, _ = smoke
    found = invoke("study", "claims", path, "--out", tmp_path / "again")
    assert found.stdout.splitlines()[-1] == f"Tables and figures are in {tmp_path / 'again'}"
    for each in ("optimizers.csv", "optimizers-log.csv", "clicks-regret.csv", "clicks-lead.csv"):
        again = (tmp_path / "again" / "figures" / each).read_bytes()
        assert again == (path.parent / "figures" / each).read_bytes()
    for each in ("regret", "learning-rates", "significance"):
        again = (tmp_path / "again" / "tables" / f"clicks-{each}.txt").read_bytes()
        assert again == (path.parent / "tables" / f"clicks-{each}.txt").read_bytes()


def test_it_is_printed_with_verdicts_and_what_is_left_out():
    found = invoke("study", "claims", PUBLISHED, "--data", "istella-like")
    assert "CONFIRMED (optimizers, istella-like): CounterSample has lower regret" in found.stdout
    assert "yahoo-like" not in found.stdout
    found = invoke("study", "claims", PUBLISHED)
    assert "ends is left out: it is no study of the package" in found.stderr


def test_values_without_every_method_are_left_out(rows, tmp_path):
    kept = [
        not (method == "IPS-SGD" and value == "adam")
        for method, value in zip(rows["method"].to_pylist(), rows["value"].to_pylist(), strict=True)
    ]
    judged = judge_file(written(rows.filter(kept), tmp_path))
    assert judged.tables[0].columns == ("SGD", "Adagrad")
    assert judged.left_out == (
        "optimizers at adam is left out: it lacks runs of a method or dataset",
    )
    assert not any("With Adam" in verdict.claim for verdict in judged.verdicts)


def test_files_that_are_none(rows, tmp_path):
    with pytest.raises(DataError, match=r"no file .*: expected the results\.parquet of a study"):
        judge_file(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="has not the rows of a study"):
        judge_file(ROOT / "README.md")
    with pytest.raises(DataError, match="has not the rows of a study"):
        judge_file(written(rows.drop_columns("regret").drop_columns("drawn"), tmp_path))
    texts = pa.array(["many"] * len(rows))
    at = rows.column_names.index("drawn")
    with pytest.raises(DataError, match="has not the rows of a study"):
        judge_file(written(rows.set_column(at, "drawn", texts), tmp_path))
    none = pa.array([None] * len(rows), pa.int64())
    with pytest.raises(DataError, match="has rows without drawn"):
        judge_file(written(rows.set_column(at, "drawn", none), tmp_path))
    with pytest.raises(DataError, match="has no rows of mq2008: it has yahoo-like"):
        judge_file(written(rows, tmp_path), ["mq2008"])
    with pytest.raises(DataError, match="different points: expected whole runs"):
        judge_file(written(rows.slice(7), tmp_path))
    with pytest.raises(DataError, match="optimizers: no value of optimizer has runs of every"):
        judge_file(written(rows.slice(0, 300), tmp_path))
    mine = pa.array(["mine"] * len(rows))
    with pytest.raises(DataError, match="has no study of the package"):
        judge_file(written(rows.set_column(0, "study", mine), tmp_path))
    with pytest.raises(DataError, match="has no rows of runs: it has none"):
        judge_file(written(rows.slice(0, 0), tmp_path))

"""``countersample.toml``: options of all commands in a file, and usage errors with suggestions."""

import json
import shlex
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import SEED
from pyarrow import parquet
from shops import make

from countersample.cli.app import COMMANDS, USAGE, app
from countersample.cli.parameters import parse_whole


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a log with other names of columns."""
    monkeypatch.chdir(tmp_path)
    log, _ = make(SEED, queries=10, sessions=100)
    names = {"query_id": "q", "item_id": "doc"}
    parquet.write_table(
        log.rename_columns([names.get(each, each) for each in log.column_names]), "log.parquet"
    )
    return tmp_path


COLUMNS = 'columns = {query_id = "q", item_id = "doc"}\n'


def test_a_file_in_the_folder_is_read_by_every_command(run, folder):
    assert "no columns 'query_id'" in run("log", "check", "log.parquet", fails=True)
    Path("countersample.toml").write_text(f"{COLUMNS}gamma = 1.0\n")  # which check has not
    assert json.loads(run("log", "check", "log.parquet", "--json"))["clicks"] > 0
    run("log", "sample", "log.parquet", "--queries", 3, "-o", "some.parquet")
    assert (folder / "some.parquet").exists()


@pytest.mark.usefixtures("folder")
def test_a_named_file_is_taken_instead_and_the_command_line_wins(run):
    Path("countersample.toml").write_text("nonsense = 1\n")
    Path("team.toml").write_text(f'{COLUMNS}context = ["policy"]\npositions-from = 0\n')
    found = run("--config", "team.toml", "log", "check", "log.parquet", "--positions-from", 1)
    assert "contexts" in found
    assert "   1  █" in found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colums = {}", "no command has a table 'colums', did you mean 'columns'?"),
        ('out = "x"', "no command has an option 'out'"),
        ("known = 'x'", "no command has an option 'known'"),
        ("no_evaluation = true", "no command has an option 'no_evaluation'"),
        ("[log]\npositions_from = 1", "no command has a table 'log'"),
        ("columns = ", "cannot be read as TOML"),
        ('engine = "abacus"', "--engine is 'abacus', expected one of duckdb"),
        ("positions_from = 7", "--positions-from is '7', expected one of 0, 1"),
    ],
)
def test_a_wrong_file_is_one_sentence(run, text, message):
    Path("countersample.toml").write_text(text)
    assert message in run("log", "check", "log.parquet", fails=True, leaves=())


def test_a_file_that_is_not_there(run):
    assert "no.toml: no such file" in run("--config", "no.toml", "data", "list", fails=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log", "chek"], 'unknown command "chek". Did you mean "check"?'),
        (["data", "list", "--data-dr"], "unknown option: --data-dr. Did you mean --data-dir?"),
        (["log", "sample", "x"], "log sample needs --queries: the number of queries"),
    ],
)
def test_wrong_usage_is_one_sentence_with_a_suggestion(run, words, message):
    (line,) = run(*words, code=USAGE, told=True).splitlines()
    assert line.startswith("countersample: ")
    assert message in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit x", "fit needs --out or -o: the ranker to write (.json)"),
        ("rank x.json", "rank needs DATA: a table with the ranker's features"),
    ],
)
def test_what_is_missing_is_described(run, words, message):
    assert message in run(*words.split(), code=USAGE, told=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit log.csv -o a.json --metric ndcg", "--metric is 'ndcg', expected dcg@k"),
        ("fit log.csv -o a.json --columns qid=q", "--columns has 'qid', expected names"),
        ("fit log.csv -o a.json --columns query_id=q", "map it with --columns query_id=query_id"),
    ],
)
def test_messages_name_options_and_no_python(run, words, message):
    Path("log.csv").write_text("query_id,item_id,position,click\nq,a,1,1\n")
    told = run(*words.split(), fails=True, leaves=("log.csv",))
    assert message in told
    assert "columns=" not in told


def test_a_wrong_choice_is_suggested(run):
    told = run("data", "make", "tini", "x", fails=True)
    assert told.endswith("expected one of yahoo-like, istella-like, tiny; did you mean tiny?")


def test_a_number_that_is_not_whole_is_rejected(run):
    error = run("data", "make", "tiny", "x", "--queries", "10.7", fails=True)
    assert error.endswith("is 10.7, expected a whole number")


OVERWRITES = [
    "fit file -o file", "fit x -o y.json --report file --features file", "fit dir -o dir/a",
    "fit x -o file --item-features file", "fit x -o file --propensities file",
    "fit x -o y.json --report file --warm-start file", "fit 'd*/a' -o dir/a",
    "fit x -o hard --query-features file",
    "rank x file -o link", "rank file x -o file", "export file --to onnx -o link",
    "propensity dir -o dir/a", "propensity file --plot link", "judgements file -o hard",
    "train file x -o file", "train x file -o file",
    "simulate file -o file", "simulate x --policy y --policy file -o file",
    "log check file --plot hard", "log check x --against file --report file",
    "log check x --features file --plot file", "log sample file --queries 3 -o link",
    "log count dir -o dir", "data convert file link", "data convert dir dir",
    "demo --data dir -o dir", "reproduce file -o file", "study claims file -o file",
    "data make tiny countersample.toml", "--config file fit x -o file",
]  # fmt: skip


@pytest.mark.parametrize("words", OVERWRITES)
def test_an_input_is_not_overwritten(words, run, tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "a").write_text("")
    (tmp_path / "file").write_text("")
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "countersample.toml").write_text("")
    assert "is an input of this command" in run(*shlex.split(words), fails=True)


def test_every_command_with_an_output_is_tested():
    with_output = {
        name
        for name in NAMES
        for argument in _command(name).assemble_argument_collection()
        if argument.field_info.name in {"out", "plot", "report", "target"}
    }
    tested = {name for name in NAMES if any(f"{name} " in words for words in OVERWRITES)}
    assert with_output == tested


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "memory ran out: give the command more of it"),
        (ImportError("x.so: failed to map segment"), "x.so: failed to map segment: lift limits"),
        (ImportError("no module x"), "a library cannot be loaded: no module x: install the"),
        (
            OSError("Could not find libllvmlite.so\nin"),
            "Could not find libllvmlite.so: lift limits",
        ),
    ],
)
def test_want_of_memory_is_one_sentence(error, message, run, monkeypatch):
    monkeypatch.setattr("countersample.cli.app.main", Mock(side_effect=error))
    assert message in run("data", "list", fails=True)


NAMES = [
    f"{home} {function.__name__.rstrip('_')}".strip()
    for home, functions in COMMANDS.items()
    for function in functions
]


def test_every_whole_number_is_parsed_without_rounding():
    """Cyclopts rounds 10.7 unless an option of whole numbers has this converter."""
    names = [
        f"{name} {argument.name}"
        for name in NAMES
        for argument in _command(name).assemble_argument_collection()
        if argument.hint in {int, int | None} and argument.parameter.converter is not parse_whole
    ]
    assert not names


def _command(name):
    command = app
    for word in name.split():
        command = command[word]
    return command


@pytest.mark.parametrize("command", ["", "log", "data", "study", *NAMES])
def test_every_command_has_help(run, command):
    text = run(*command.split(), "--help")
    assert text.startswith(f"Usage: countersample {command}".rstrip())
    assert len(NAMES) == 20
    assert ":param" not in text

"""What all tests share: the seed, real data where it is present, engines, a browser."""

import math
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
import requirements
import small_postgres
import small_spark

import countersample.data  # noqa: F401 (before doctests are collected from its modules)
from countersample.cli import main
from countersample.logs import read_impressions
from countersample.logs.engines import ENGINES

SEED = int(os.environ.get("COUNTERSAMPLE_TEST_SEED", "0"))
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
FUZZED = ("files", "folders", "letor", "logs")
# Programs of their own.
collect_ignore = ["as_older_cpu.py", "endure.py", "offline", *(f"fuzz_{x}.py" for x in FUZZED)]

# The same examples on every run by default; other ones with another seed.
hypothesis.settings.register_profile("default", deadline=None, derandomize=SEED == 0)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(items):
    """Mark docstrings: their results are the same on every CPU."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.rounding)


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip("needs the real data in ../shared/data")
    return SHARED


@pytest.fixture(scope="module")
def cluster():
    """Spark on a real local cluster: two worker processes beside the driver."""
    requirements.need("spark")
    tiny = pa.table({"query_id": [1], "item_id": [1], "position": [1], "click": [0]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", small_spark.SUBMIT)
        log = read_impressions(tiny, engine="spark", master=small_spark.CLUSTER)
    with log:
        session = log.frame.to_native().sparkSession
        assert session.conf.get("spark.sql.shuffle.partitions") == "2"
        yield session
    assert session.sparkContext._jsc is None  # it was started here, so it is stopped here


@pytest.fixture(scope="session")
def postgres():
    """Start a PostgreSQL server."""
    requirements.need("postgres")
    with small_postgres.serving(requirements.find_postgres()) as server:
        yield server


@pytest.fixture(scope="module", params=ENGINES)  # all tests of an engine, then of the next
def engine(request):
    """Each engine that counts logs."""
    if request.param == "spark":
        request.getfixturevalue("cluster")
    return request.param


@pytest.fixture(scope="module")
def browser():
    requirements.need("browser")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-sync", "--disable-background-networking",
                 "--disable-component-update"]  # fmt: skip
    with sync_playwright() as playwright:
        program = requirements.find_browser()
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open a page by its address; in the end nothing may have been logged, thrown or fetched."""
    contexts, trouble, requests, addresses = [], [], [], []

    def open_page(address, **options):
        context = browser.new_context(**options)
        context.set_default_timeout(180_000)  # milliseconds: a busy machine is no failure
        contexts.append(context)
        addresses.append(address)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not trouble
    asked = [url for url in requests if not url.startswith("data:")]  # pictures in the page
    assert asked == addresses


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; return its output.

    Or, where it ``fails``, its one line of error; then nothing is new but what it ``leaves``. A
    command that succeeds may end with another ``code``; with ``told``, what it said beside its
    results is returned.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("countersample._progress.PATIENCE", math.inf)  # however slow the machine
    monkeypatch.setattr("countersample.cli.process.watch_signals", nullcontext)  # they are pytest's

    def run(*arguments, fails=False, leaves=(), code=0, told=False):
        before = {path.name for path in tmp_path.iterdir()}
        monkeypatch.setattr(sys, "argv", ["countersample", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code == (1 if fails else code), printed.err
        if not fails:
            return printed.err if told else printed.out
        (line,) = printed.err.splitlines()
        assert line.startswith("countersample: ")
        assert {path.name for path in tmp_path.iterdir()} == before.union(leaves)
        return line

    return run

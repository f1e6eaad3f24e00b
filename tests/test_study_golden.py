"""A tiny study gives the numbers it gave before, or `RESULTS_VERSION` is raised.

python tests/test_study_golden.py     stores the numbers of today
"""

import json
import tempfile
from pathlib import Path

import pytest
from study_runs import GRID, finish

from countersample.study.experiment import plan
from countersample.study.running.store import RESULTS_VERSION, Store

GOLDEN = Path(__file__).with_name("golden_study.json")
RAISE = (
    "a study gives other numbers than before: if that is meant, raise RESULTS_VERSION in "
    "study/running/store.py, so that results folders make their results again, and store the new "
    "numbers with python tests/test_study_golden.py"
)
# Not numbers; and the weights of w*, which `levels` evaluates: they depend on rounding.
LEFT_OUT = {"seconds", "versions", "fingerprints", "sentence", "warnings", "verdict", "best"}


def rows(folder):
    """What every job of a study of each stage found, by stage, title and seed."""
    (folder / "mine.toml").write_text(
        GRID.replace("[vary]", "nothing_set = true\n\n[vary]").replace("[0.5, 1.0]", "[1.0]")
    )
    settings = {"queries": 60, "clicks": 400, "seeds": 2}
    grids = [folder / "mine.toml", "datasets", "bounds"]
    experiment = plan(grids, scale="smoke", datasets=["tiny"], settings=settings)
    store = Store(folder / "out")
    work = finish(experiment, store)
    return {
        f"{job.stage}: {job.title}, seed {job.config.get('seed', 0)}": {
            name: value
            for name, value in store.read(job).items()
            if name not in LEFT_OUT or job.stage == "levels"
        }
        for job in work.jobs.values()
        if job.stage not in {"data", "clicks"}
    }


def numbers(value):
    """All numbers of plain values, in order."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [] if value is None or isinstance(value, str) else [float(value)]


@pytest.mark.rounding
def test_the_numbers_are_those_of_this_results_version(tmp_path):
    golden = json.loads(GOLDEN.read_text("utf-8"))
    found = rows(tmp_path)
    assert golden["results_version"] == RESULTS_VERSION, "run python tests/test_study_golden.py"
    assert golden["rows"].keys() == found.keys(), RAISE
    for name, row in found.items():
        # Sums of other CPUs differ in their last bits, and training carries them on.
        expected = pytest.approx(numbers(golden["rows"][name]), rel=1e-3, abs=1e-3)
        assert numbers(row) == expected, f"{name}: {RAISE}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        content = {"results_version": RESULTS_VERSION, "rows": rows(Path(temporary))}
    GOLDEN.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")

"""The golden values: numbers that no refactoring may change. See `golden.py`."""

from dataclasses import replace

import golden
import numpy as np
import pytest


def subject_with_marks(name):
    subject = golden.SUBJECTS[name]
    marks = [pytest.mark.rounding] if subject.exact_on == golden.EVERY_CPU else []
    return pytest.param(name, marks=[*marks, pytest.mark.slow] if subject.is_slow else marks)


@pytest.mark.parametrize("name", [subject_with_marks(name) for name in golden.SUBJECTS])
def test_values_are_as_stored(name):
    subject = golden.SUBJECTS[name]
    for library in subject.libraries:
        if library not in golden.versions([library]):
            pytest.skip(f"{library} is not installed")
    if golden.tolerance_here(subject, golden.read(name)) is None:
        pytest.skip("these values hold on the CPU and with the libraries they were stored with")
    sentences = golden.differences(name)
    assert not sentences, "\n".join(["values differ from tests/golden:", *sentences[:20]])


def test_a_changed_number_is_reported(monkeypatch):
    """By name, with the stored and the computed number; one bit is enough if it is exact."""
    for name, key, change in (("counts", "raw: value", 2**-52), ("metrics", "evaluate arp", 2e-12)):
        subject = golden.SUBJECTS[name]
        numbers = subject.compute()
        is_one = len(np.ravel(numbers[key])) == 1
        values = np.array(numbers[key], float).ravel()
        values[0] = (values[0] or 1.0) * (1 + change)
        changed = numbers | {key: values}
        monkeypatch.setattr(
            golden, "SUBJECTS", {name: replace(subject, compute=lambda new=changed: new)}
        )
        sentences = golden.differences(name)
        assert sentences
        assert all(each.startswith(f"{name}: {key}") for each in sentences)
        assert all("stored" in each and "computed" in each for each in sentences)
        assert len(sentences) == 1 or not is_one
        monkeypatch.undo()


def test_every_stored_file_has_a_subject_and_they_are_small():
    paths = sorted(golden.FOLDER.glob("*.json"))
    assert {path.stem for path in paths} == set(golden.SUBJECTS)
    assert sum(path.stat().st_size for path in paths) < 300_000

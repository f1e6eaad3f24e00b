"""Progress, its lines and its bar; text of a file is shown on a terminal, and not obeyed."""

import json
import sys

import pytest

from countersample import _progress
from countersample._progress import Progress, byte_progress, printable, share_progress
from countersample.cli import console
from countersample.cli.console import Output

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e"


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    at = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: at[0])
    return at


def test_parts_of_parts_add_up():
    calls = []
    whole = Progress(lambda what, share: calls.append((what, round(share, 3))))
    first, second = whole.part(0.5, "a"), whole.part(0.5, "b")
    first.part(0.5, "c").update(1.0)
    second.part(0.25).update(0.5)
    assert calls == [("c", 0.25), ("b", 0.562)]  # 1/2 · 1/2, 1/2 + 1/2 · 1/4 · 1/2


def test_plain_lines_after_two_seconds_then_every_ten(clock, capsys):
    with share_progress("fitting") as update:
        for second, share in ((1, 0.1), (4, 0.2), (5, 0.25), (20, 0.5)):
            clock[0] = 100.0 + second
            update("training", share)
    assert capsys.readouterr().err.splitlines() == [
        "fitting: training, 20 % done, 16 s left",
        "fitting: training, 50 % done, 20 s left",
    ]


@pytest.mark.parametrize(
    ("total", "line"),
    [
        (100_000_000, "reading x: 50 of 100 MB, 10 MB/s, 50 % done, 5 s left"),
        (None, "reading x: 50 MB, 10 MB/s"),
    ],
)
def test_bytes(clock, capsys, total, line):
    with byte_progress("reading x", total, show=True) as report:
        clock[0] = 105.0
        report(50_000_000)
    assert capsys.readouterr().err.strip() == line


# -- text from files ------------------------------------------------------------------------------


def test_names_with_brackets_on_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(_progress, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with share_progress("reading [/a].txt", show=True) as update:
        update("half [/b]", 0.5)
    assert "reading [/a].txt" in capsys.readouterr().err


def test_control_characters_are_escaped():
    assert printable(EVIL) == r"\u001b[2J\u001b]0;title\u0007\u000d\u009b31m\u202e"
    assert printable("a\tb\nnaïve – 日本 ✓") == "a\tb\nnaïve – 日本 ✓"


def test_results_and_notes(capsys):
    console.note(f"item {EVIL}")
    for as_json in (False, True):
        Output(f"item {EVIL}", {"item": EVIL}).show(as_json=as_json)
    printed = capsys.readouterr()
    for text in printed:
        assert not set(text) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}
        assert r"\u001b" in text
    assert json.loads(printed.out[printed.out.index("{") :]) == {"item": EVIL}

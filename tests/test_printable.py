"""What a file says is shown on a terminal, and not obeyed."""

import json
import sys

import pytest

from countersample._printable import printable
from countersample.cli import _show

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e"


def test_what_steers_a_terminal_is_written_out():
    assert printable(EVIL) == r"\u001b[2J\u001b]0;title\u0007\u000d\u009b31m\u202e"
    assert printable("a\tb\nnaïve – 日本 ✓") == "a\tb\nnaïve – 日本 ✓"


@pytest.mark.parametrize("show", [_show.line, _show.note, _show.paragraph])
def test_results_and_notes(show, capsys):
    show(f"item {EVIL}")
    printed = "".join(capsys.readouterr())
    assert not set(printed) & set(EVIL) - set("[]0;title2J31m")
    assert r"\u001b" in printed


def test_json_says_the_same(capsys):
    _show.as_json({"item": EVIL})
    printed = capsys.readouterr().out
    assert not set(printed) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}
    assert json.loads(printed) == {"item": EVIL}


def test_errors_of_a_command(run, tmp_path):
    content = {"format": "countersample-ranker", "version": EVIL, "checksum": "", "ranker": {}}
    (tmp_path / "ranker.json").write_text(json.dumps(content))
    (tmp_path / "data.txt").write_text("1 qid:1 1:0.5\n")
    said = run("evaluate", "ranker.json", "data.txt", fails=True)
    assert r"version of the file is '\x1b[2J" in said


def test_names_with_brackets_on_a_bar(monkeypatch, capsys):
    from countersample import _progress

    monkeypatch.setattr(_progress, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with _progress.share_progress("reading [/a].txt", show=True) as update:
        update(f"half {EVIL}", 0.5)
    assert "reading [/a].txt" in capsys.readouterr().err

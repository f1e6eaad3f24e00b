"""Ctrl-C and the like: one way to leave, at any moment, for every command, and nothing left over.

Moments are events, not times: the import of a module, the end of the writing of a file. What comes
before the first line of this package, while the interpreter itself starts, cannot be caught.
"""

import importlib
import inspect
import pkgutil
import resource
import signal
import subprocess
import sys
import typing

import numpy as np
import pytest
from pyarrow import parquet

from countersample import _kernels, save_letor, simulate_clicks, synthetic
from countersample.clicks import Shuffled, simulate_impressions

# Runs the command line, and sends itself a signal at an event: in a thread or in the main one.
CHILD = """
import os, sys, threading
number, event = int(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]

def send():
    os.kill(os.getpid(), number)

class Finder:
    def find_spec(self, name, *_):
        if name == event:
            send()

if event == "written":
    import countersample._files
    countersample._files._replace = lambda *_: send()
elif event == "computing":
    import countersample._kernels.metrics as kernels  # in compiled code, which others wait for
    def busy(*_):
        threading.Timer(0.2, send).start()
        import numpy as np
        from countersample._kernels import clicks
        from countersample._kernels.clicks import source_of
        n, one, rng = 10**9, np.full(1, 0.5), np.random.default_rng(0)
        clicks.clicks_until(source_of(rng), np.array([0, 1]), one, one, one,
                            np.empty(n, np.int32), np.empty(n, np.int64))
    kernels.rank = busy
else:
    sys.meta_path.insert(0, Finder())
from countersample.cli import main
main()
"""
COMMANDS = {
    "data make": "data make tiny made.txt --queries 20",
    "simulate": "simulate data.txt -o made.parquet --clicks 300",
    "train": "train data.txt clicks.parquet -o made.json --no-evaluation --steps 9",
    "log check": "log check raw.parquet",
    "log sample": "log sample raw.parquet --queries 5 -o made.parquet",
    "fit": "fit raw.parquet --features data.txt -o made.json",
    "demo": "demo --out made",
}
WRITE = ("data make", "simulate", "train", "log sample")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the commands read."""
    folder = tmp_path_factory.mktemp("signals")
    dataset = synthetic("tiny", n_queries=30, rng=0)
    save_letor(dataset, folder / "data.txt")
    log = simulate_clicks(dataset, dataset.features[:, 0], 300, rng=0)
    log.save(folder / "clicks.parquet")
    shown = simulate_impressions(dataset, Shuffled(dataset.features[:, 0]), 400, rng=0)
    parquet.write_table(shown, folder / "raw.parquet")
    return folder


def run(folder, command, number, event, action=signal.SIG_DFL):
    """Run a command with what its parent does on the signal, whatever started these tests."""
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(int(number)), event, *COMMANDS[command].split()],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        preexec_fn=lambda: signal.signal(number, action),
    )  # fmt: skip


def check(folder, command, number, event, said):
    before = sorted(path.name for path in folder.iterdir())
    done = run(folder, command, number, event)
    *progress, last = done.stderr.splitlines()  # it is told where the machine is slow
    assert (done.returncode, last) == (128 + number, f"countersample: {said}")
    assert all("% done" in line for line in progress)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "event"),
    [
        ("data make", "cyclopts"),
        ("simulate", "numpy.linalg"),
        ("fit", "countersample._environment"),
        ("demo", "numpy.linalg"),
        *((command, "written") for command in WRITE),
    ],
)
def test_at_an_import_or_before_a_file_has_its_name(folder, command, event):
    check(folder, command, signal.SIGINT, event, "interrupted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "terminated"),
        (signal.SIGHUP, "the terminal has gone"),
    ],
)
def test_in_compiled_code_that_would_take_long(folder, number, said):
    check(folder, "simulate", number, "computing", said)


def test_a_full_disk_leaves_no_half_file(folder):
    """As a limit on the size of a file, which writing meets in the middle."""
    before = sorted(path.name for path in folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "countersample", *COMMANDS["data make"].split()],
        cwd=folder, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("countersample: made.txt: cannot be written: ")
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.slow
def test_what_is_ignored_stays_so(folder):
    """As nohup and a script's jobs in the background have it."""
    done = run(folder, "log check", signal.SIGHUP, "numpy", signal.SIG_IGN)
    assert (done.returncode, done.stderr) == (0, "")


# -- in a library, which sets no handler of signals: compiled code is safe by itself


def test_an_interrupt_during_compiled_code_is_an_interrupt():
    code = """
import os, signal, threading, time
import numpy as np
from countersample import simulate_clicks, synthetic
data = synthetic("tiny", n_queries=20, rng=0)
simulate_clicks(data, data.features[:, 0], 100, rng=0)  # compiled
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    simulate_clicks(data, data.features[:, 0], 5_000_000, rng=0)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def kernels():
    for module in pkgutil.iter_modules(_kernels.__path__):
        for name, value in vars(
            importlib.import_module(f"countersample._kernels.{module.name}")
        ).items():
            if hasattr(value, "py_func"):
                yield pytest.param(value.py_func, id=f"{module.name}.{name}")


@pytest.mark.parametrize("kernel", list(kernels()))
def test_kernels_return_no_arrays_and_take_no_generators(kernel):
    """numba makes the one and reads the other by calls of Python's, which a signal may end."""
    hints = typing.get_type_hints(kernel)
    returned = hints.pop("return")
    plain = {int, float, bool, type(None)}
    assert returned in plain or plain.issuperset(typing.get_args(returned))
    assert np.random.Generator not in hints.values()
    assert len(hints) == len(inspect.signature(kernel).parameters)

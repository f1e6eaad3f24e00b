"""Train, kill, resume, convert, fit … in random order for as long as it is told, under limits.

    python tests/endure.py --minutes 60 [--seed 0] [--signals INT,TERM,KILL]

Each action is a process, with a limit on memory and on the size of a file. Some are left alone,
some get a signal at a random moment, some find the disk full. Afterwards a result is either
complete, with the bytes that it has when nothing happens, or what it was before; what is no result
is gone; there was no traceback. (After SIGKILL, a temporary file may remain beside a result, or
among the temporary files; it is removed here.) Neither the folders for temporary files and caches
grow, nor a process that goes on and on, nor the memory that an action takes. The first thing that
does not hold ends it with exit code 1.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

MEMORY = 8 << 30  # bytes of addresses: what is reserved counts, too
# The command line; it writes a byte once signals are watched for: before, the interpreter starts.
COMMAND = """
import os, sys
from contextlib import contextmanager
from countersample.cli import main, process
original = process.watch_signals
@contextmanager
def watching():
    with original():
        os.write(int(os.environ["READY"]), b".")
        yield
process.watch_signals = watching
main()
"""
RESUMED = """
import os, sys
from countersample import ClickLog, load_letor, train
from countersample._files import atomic_path
from countersample.training import runs
runs.SECONDS_BETWEEN_SAVES = 0
data = load_letor("data.txt")
os.write(int(os.environ["READY"]), b".")
found = train(data, ClickLog.load("clicks.parquet", data), learning_rate=1e-4, steps=400_000,
              unit="query", optimizer="adam", rng=0, resume="state.npz")
with atomic_path("trained.bin") as path:  # complete or not there, as results of commands are
    path.write_bytes(found.coef.tobytes() + found.average_coef.tobytes())
"""
# Goes on and on: a round for each line it reads, and then says how much memory it has.
RESIDENT = """
import resource, sys
from countersample import CounterSampleRanker, evaluate, load_letor, simulate_clicks
for line in sys.stdin:
    data = load_letor("data.txt")
    log = simulate_clicks(data, data.features[:, 0], 2000, rng=0)
    ranker = CounterSampleRanker(learning_rate=0.01, steps=2000, random_state=0)
    evaluate(ranker.fit_log(data, log), data, "ndcg@10")
    pages = int(open("/proc/self/statm").read().split()[1])
    print(pages * resource.getpagesize(), flush=True)
"""
ACTIONS = {  # the words of a command, or a program; what it writes
    "convert": ("data convert data.txt converted.parquet", ["converted.parquet"]),
    "pack": ("data convert data.txt packed", ["packed"]),
    "simulate": ("simulate data.txt -o simulated.parquet --clicks 200000", ["simulated.parquet"]),
    "train": ("train data.txt clicks.parquet -o trained.json", ["trained.json"]),
    "rank": ("rank ranker.json data.txt -o ranked.txt", ["ranked.txt"]),
    "propensity": ("propensity raw.parquet -o propensities.json", ["propensities.json"]),
    "fit": ("fit raw.parquet --features data.txt -o fitted.json", ["fitted.json", "fitted.html"]),
    "resume": (RESUMED, ["trained.bin"]),
}
KEPT = {"resume": ["state.npz"]}  # what an action that was stopped goes on from
INPUTS = {
    "data.txt": "data make tiny data.txt --queries 150",
    "clicks.parquet": "simulate data.txt -o clicks.parquet --clicks 2000",
    "raw.parquet": "simulate data.txt -o raw.parquet --sessions 2000 --shuffle 10",
    "ranker.json": "train data.txt clicks.parquet -o ranker.json --no-evaluation "
    "--learning-rate 0.01",
}


class BrokenError(Exception):
    """Something did not hold."""


class Bench:
    """The folders, and what each action does when nothing happens to it."""

    def __init__(self, folder, rng):
        self.rng = rng
        self.work, self.temporary, self.home = (
            folder / name for name in ("work", "temporary", "home")
        )
        for path in (self.work, self.temporary, self.home):
            path.mkdir()
        self.seconds, self.bytes, self.memory = {}, {}, {}
        self.counts = Counter()
        for words in INPUTS.values():
            self.run(words)
        for name, (what, outputs) in ACTIONS.items():
            begin = time.monotonic()
            self.memory[name] = [self.run(what)]
            self.seconds[name] = time.monotonic() - begin
            self.bytes[name] = {output: contents(self.work / output) for output in outputs}
            self.clear(name)
        self.around = len(files(self.home)), len(files(self.temporary))

    def start(self, what, **limits):
        ready, tell = os.pipe()
        own = {"HOME": self.home, "XDG_CACHE_HOME": self.home, "TMPDIR": self.temporary,
               "READY": tell}  # fmt: skip
        is_program = "\n" in what
        child = subprocess.Popen(
            [sys.executable, "-c", *([what] if is_program else [COMMAND, *what.split()])],
            cwd=self.work, env=os.environ | {name: str(value) for name, value in own.items()},
            pass_fds=[tell], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=lambda: limit(**limits),  # noqa: PLW1509 (there is one thread)
        )  # fmt: skip
        os.close(tell)
        with os.fdopen(ready, "rb") as pipe:
            pipe.read(1)  # or its end, where it has ended before
        return child

    def run(self, what):
        """Do it undisturbed; return the most memory that it had, in MB."""
        child = self.start(what)
        told = child.stderr.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stderr.close()
        if child.returncode:
            raise BrokenError(f"{what}\nended with {child.returncode}:\n{told}")
        return usage.ru_maxrss / 1024

    def clear(self, name):
        for output in [*ACTIONS[name][1], *KEPT.get(name, [])]:
            remove(self.work / output)

    # -- one action, with what may happen to it

    def left_alone(self, name):
        self.memory[name].append(self.run(ACTIONS[name][0]))
        self.check(name, complete=True)
        self.clear(name)

    def signalled(self, name, number):
        what, _ = ACTIONS[name]
        if name == "resume":
            number = signal.SIGKILL  # it is a program with the library, which takes no signals
        child = self.start(what)
        time.sleep(self.rng.uniform(0, self.seconds[name]))
        child.send_signal(number)
        told = child.communicate()[1].decode()
        # SIGTERM while the interpreter ends, when the result is there, is nobody's to catch.
        if child.returncode not in {0, 128 + number, -number} or "Traceback" in told:
            raise BrokenError(f"{number!r}: ended with {child.returncode}:\n{told}")
        self.counts["done before"] += child.returncode == 0
        if number == signal.SIGKILL:
            self.counts["temporary files of killed processes"] += self.remove_temporary_files()
            self.run(what)  # goes on where it can
        self.check(name, complete=child.returncode <= 0)
        if self.rng.random() < 0.5:  # else the next one finds a result there
            self.clear(name)

    def remove_temporary_files(self):
        """Remove what only the killed process could have removed; return the number of paths."""
        paths = [*self.work.glob(".*.tmp"), *self.work.glob(".*.old"), *self.temporary.iterdir()]
        for path in paths:
            remove(path)
        return len(paths)

    def with_a_full_disk(self, name):
        largest = max(sum(map(len, found.values())) for found in self.bytes[name].values())
        child = self.start(ACTIONS[name][0], size=max(1, largest // 3))
        told = child.communicate()[1].decode()
        is_program = name == "resume"
        if child.returncode not in {0, 1} or ("Traceback" in told and not is_program):
            raise BrokenError(f"full disk: ended with {child.returncode}:\n{told}")
        self.check(name, complete=child.returncode == 0)
        self.clear(name)

    def check(self, name, *, complete):
        """Compare all results with what they should be, and look for what should not be there."""
        expected = {*INPUTS}
        for other, (_, outputs) in ACTIONS.items():
            expected |= {*outputs, *KEPT.get(other, [])}
            for output in outputs:
                path = self.work / output
                if path.exists() and contents(path) != self.bytes[other][output]:
                    raise BrokenError(f"{output} has other bytes than it should")
                if complete and other == name and not path.exists():
                    raise BrokenError(f"{output} is not there")
        over = sorted({path.name for path in self.work.iterdir()} - expected)
        if over:
            raise BrokenError(f"left over: {', '.join(over)}")
        around = len(files(self.home)), len(files(self.temporary))
        if around > self.around or around[1] > self.around[1]:
            raise BrokenError(f"files in caches, temporary files: {self.around}, now {around}")

    def check_memory(self):
        for name, (first, *later) in self.memory.items():
            if later and later[-1] > 1.3 * first + 50:
                raise BrokenError(f"{name} had {first:.0f} MB at first and has {later[-1]:.0f}")


def check_growth(sizes):
    """Of a process that goes on and on, by rounds, in MB; after the first ones it has all."""
    half = len(sizes) // 2
    if half > 10 and max(sizes[half:]) > 1.1 * max(sizes[:half]) + 20:
        raise BrokenError(f"a process had {sizes[0]:.0f} MB at first and has {sizes[-1]:.0f}")


def limit(memory=MEMORY, size=None):
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def contents(path):
    """The bytes of a file, or of each file of a folder, by name, but for a header's times."""
    paths = [path] if path.is_file() else sorted(files(path))
    paths = [each for each in paths if each.name != "header.json"]
    return {str(each.relative_to(path.parent)): each.read_bytes() for each in paths}


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def endure(folder, minutes, seed, signals):
    rng = random.Random(seed)  # noqa: S311 (no secret)
    begin = time.monotonic()
    bench = Bench(folder, rng)
    resident = subprocess.Popen(
        [sys.executable, "-c", RESIDENT], cwd=bench.work, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    sizes, name, what = [], "", ""
    end = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < end:
            name = rng.choice(list(ACTIONS))
            what = rng.choice(["left alone", "full disk", *signals, *signals])
            bench.counts[what] += 1
            if what == "left alone":
                bench.left_alone(name)
            elif what == "full disk":
                bench.with_a_full_disk(name)
            else:
                bench.signalled(name, getattr(signal, f"SIG{what}"))
            resident.stdin.write("\n")
            resident.stdin.flush()
            sizes.append(int(resident.stdout.readline()) / 1e6)
        bench.check_memory()
        check_growth(sizes)
    except BrokenError as error:
        print(f"After {sum(bench.counts.values())} actions (seed {seed}), {name}, {what}: {error}")  # noqa: T201
        return 1
    finally:
        resident.stdin.close()
        resident.wait()
    counts = ", ".join(f"{n} {what}" for what, n in sorted(bench.counts.items()))
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes (seed {seed}): {counts}; all held.")  # noqa: T201
    print(f"A process that went on had {sizes[0]:.0f} MB at first and {sizes[-1]:.0f} in the end.")  # noqa: T201
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals", default="INT,TERM,KILL", help="with commas")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endure-") as folder:
        sys.exit(endure(Path(folder), given.minutes, given.seed, given.signals.split(",")))


if __name__ == "__main__":
    main()

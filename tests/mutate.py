"""Mutation testing: apply one small fault at a time and check that the tests catch it.

    python tests/mutate.py [--only ID ...] [--jobs N] [--timeout SECONDS] [--again] [--unchecked]
                           [-o FILE]

The faults are listed in `tests/mutations.toml`. Each names a file, a text that occurs exactly once
in it, the text that replaces it, and the test files that should fail. The program copies sources
and tests to a temporary folder per job; the working tree is never edited. There it

1. runs the listed tests once without a fault, which must pass (not with ``--unchecked``),
2. applies one fault, runs its tests with ``-x``, and restores the file,
3. writes the result table after each fault (CSV, `tests/mutations.csv` by default).

Results
-------
caught
    A test failed: an assertion, or an exception while the test or its fixture ran.
survived
    All listed tests passed.
broken
    The tests could not be collected (an import error, say). This counts as caught only for a fault
    with ``import_error = true``: such a fault would be noticed without any test.
timeout
    The tests did not end in time.

A second run skips faults that the table has as caught already. A fault runs again if it was not
caught, or if its entry or the file that it changes is another since. After tests were changed, run
all of them with ``--again``.

Compiled kernels are cached by a hash of the kernels' files. Faults in other files therefore share
the user's cache; a fault in a kernel gets a private cache, which is removed afterwards.

The exit code is 0 if every fault was caught, 1 if not, and 2 if the program could not run.
"""

import argparse
import ast
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/mutations.toml"
TABLE = "tests/mutations.csv"
COPIED = ("src", "tests", "examples", "experiments", "benchmarks", "conftest.py", "pyproject.toml")
COLUMNS = ("id", "room", "file", "fault", "result", "caught_by", "fingerprint")
REPORT = "MUTATION_REPORT"  # names the file that the pytest hooks below write to
DEFAULT_TIMEOUT = 300.0  # seconds per fault


class MutationError(Exception):
    """The list of faults, or the tests without a fault, are not as they should be."""


@dataclass(frozen=True)
class Mutation:
    """One fault: `old` becomes `new` in `file`, and `tests` should fail.

    `file` is relative to the root, `tests` are relative to ``tests/``: files, or ``file::test``.
    """

    id: str
    room: str
    file: str
    fault: str
    old: str
    new: str
    tests: tuple[str, ...]
    import_error: bool = False

    @property
    def is_in_kernel(self) -> bool:
        """Whether the fault changes a compiled kernel, so that kernels are compiled again."""
        return "/_kernels/" in self.file

    def apply(self, source: str) -> str:
        """Return the source with the fault; raise `MutationError` if the fault does not fit."""
        count = source.count(self.old)
        if count != 1:
            raise MutationError(
                f"{self.id}: the old text occurs {count} times in {self.file}, expected once: "
                f"edit the entry in {LIST} ({self.old!r})"
            )
        if self.new == self.old:
            raise MutationError(f"{self.id}: the new text is the old text, expected a fault")
        mutated = source.replace(self.old, self.new)
        try:
            ast.parse(mutated)
        except SyntaxError as error:
            raise MutationError(f"{self.id}: {self.file} does not parse: {error}") from error
        return mutated

    def fingerprint(self, root: Path) -> str:
        """Return a hash of the fault, of its tests' names, and of the file that it changes."""
        entry = json.dumps([self.file, self.old, self.new, self.tests])
        digest = hashlib.blake2b(entry.encode(), digest_size=8)
        digest.update((root / self.file).read_bytes())
        return digest.hexdigest()


def read_mutations(root: Path = ROOT) -> list[Mutation]:
    """Return the faults of `tests/mutations.toml`, in their order."""
    entries = tomllib.loads((root / LIST).read_text(encoding="utf-8"))["mutation"]
    mutations = [Mutation(**(entry | {"tests": tuple(entry["tests"])})) for entry in entries]
    repeated = [name for name, count in Counter(each.id for each in mutations).items() if count > 1]
    if repeated:
        raise MutationError(f"{LIST} has the id {repeated[0]!r} twice, expected different ids")
    return mutations


def choose(mutations: list[Mutation], ids: list[str] | None) -> list[Mutation]:
    """Return the faults with these ids; all of them without ids."""
    unknown = sorted(set(ids or ()) - {each.id for each in mutations})
    if unknown:
        raise MutationError(f"no fault has the id {unknown[0]!r}, expected one of {LIST}")
    return [each for each in mutations if not ids or each.id in ids]


def read_table(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a result table by id; none if there is no such file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def write_table(path: Path, mutations: list[Mutation], rows: dict[str, dict[str, str]]) -> None:
    """Write the rows in the order of the list, to a temporary file that replaces the table."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, newline="", encoding="utf-8"
    ) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for each in mutations:
            if each.id in rows:
                entry = {"room": each.room, "file": each.file, "fault": each.fault}
                writer.writerow(rows[each.id] | entry)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def is_caught(mutation: Mutation, row: dict[str, str]) -> bool:
    """Return whether a result counts as caught."""
    return row["result"] == "caught" or (row["result"] == "broken" and mutation.import_error)


def has_result(mutation: Mutation, rows: dict[str, dict[str, str]], root: Path) -> bool:
    """Return whether the table has a fault, as it is now, as caught."""
    row = rows.get(mutation.id)
    if row is None or not is_caught(mutation, row):
        return False
    return row["fingerprint"] == mutation.fingerprint(root)


# -- hooks of pytest, which loads this file as a plugin in the processes that run the tests --------


def pytest_runtest_logreport(report):
    """Write down the first test that failed."""
    if report.failed:
        _write_report("caught", report.nodeid)


def pytest_collectreport(report):
    """Write down the first file that could not be collected."""
    if report.failed:
        _write_report("broken", report.nodeid)


def _write_report(result: str, node: str) -> None:
    report = Path(os.environ[REPORT])
    if not report.exists():
        report.write_text(json.dumps({"result": result, "node": node}), encoding="utf-8")


# -- running ---------------------------------------------------------------------------------------


def copy_tree(root: Path, folder: Path) -> Path:
    """Copy sources and tests to a folder, and compile them to files that are checked by content.

    Python compares times and sizes by default, and a fault may change neither.
    """
    folder.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=ignored)
        elif (root / name).exists():
            shutil.copy2(root / name, folder / name)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, "src"], cwd=folder, check=True)
    return folder


class Processes:
    """The test processes that are running; all of them are ended when the program stops."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(self, command: list[str], timeout: float, **options) -> tuple[int | None, str]:
        """Return the exit code and the output of a command; None for one that took too long."""
        with self._lock:
            if self._is_stopped:
                return None, ""
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True, **options,
            )  # fmt: skip
            self._running.add(process)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            output, _ = process.communicate()
            return None, output
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, output

    def stop(self) -> None:
        """End all processes, and start no others."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session: the tests and their children


def run_tests(
    tree: Path, tests: tuple[str, ...], timeout: float, processes: Processes, cache: Path | None
) -> tuple[str, str, str]:
    """Run tests in a copy; return the result, the test that failed first, and the output."""
    report = tree / "report.json"
    report.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # no test needs them, and they take a second
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        REPORT: str(report),
    }
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    # Spark takes half a minute to start, and every test on it runs on faster engines, too.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-k", "not spark",
               "-p", "mutate", "-p", "no:cacheprovider",
               *(f"tests/{test}" for test in tests)]  # fmt: skip
    code, output = processes.run(command, timeout, cwd=tree, env=environment)
    if code is None:
        return "timeout", "", output
    if code == 0:
        return "survived", "", output
    if report.exists():
        found = json.loads(report.read_text(encoding="utf-8"))
        return found["result"], found["node"], output
    return "broken", "", output  # no test was found, or the process crashed


def run_mutation(
    mutation: Mutation, tree: Path, timeout: float, processes: Processes
) -> tuple[str, str]:
    """Apply a fault in a copy and run its tests; return the result and the test that failed."""
    path = tree / mutation.file
    source = path.read_text(encoding="utf-8")
    cache = Path(tempfile.mkdtemp(dir=tree.parent)) if mutation.is_in_kernel else None
    try:
        path.write_text(mutation.apply(source), encoding="utf-8")
        result, node, _ = run_tests(tree, mutation.tests, timeout, processes, cache)
    finally:
        path.write_text(source, encoding="utf-8")
        if cache is not None:
            shutil.rmtree(cache, ignore_errors=True)
    return result, node


def run_all(
    mutations: list[Mutation], root: Path, table: Path, *, jobs: int, timeout: float,
    every: list[Mutation], is_checked: bool = True,
) -> dict[str, dict[str, str]]:  # fmt: skip
    """Run faults, write the table after each, and return its rows by id."""
    rows = read_table(table)
    processes, trees = Processes(), SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutations-") as temporary:
        for job in range(jobs):
            trees.put(copy_tree(root, Path(temporary) / f"job-{job}"))
        if is_checked:
            tests = tuple(dict.fromkeys(test for each in mutations for test in each.tests))
            show(f"Running the tests without a fault first: {len(tests)} files or single tests")
            check_tests(tests, trees, processes, timeout * len(tests))
        start = time.monotonic()

        def work(mutation: Mutation) -> tuple[str, str, float]:
            tree, begin = trees.get(), time.monotonic()
            try:
                return *run_mutation(mutation, tree, timeout, processes), time.monotonic() - begin
            finally:
                trees.put(tree)

        pool = ThreadPoolExecutor(jobs)
        try:
            futures = {pool.submit(work, each): each for each in mutations}
            for n_done, future in enumerate(as_completed(futures), 1):
                mutation, (result, node, seconds) = futures[future], future.result()
                values = (mutation.id, mutation.room, mutation.file, mutation.fault, result, node,
                          mutation.fingerprint(root))  # fmt: skip
                rows[mutation.id] = dict(zip(COLUMNS, values, strict=True))
                write_table(table, every, rows)
                rate = n_done / (time.monotonic() - start)
                show(
                    f"[{n_done}/{len(mutations)}] {result:8} {mutation.id} ({seconds:.0f} s; "
                    f"{60 * rate:.1f} per minute, {(len(mutations) - n_done) / rate / 60:.0f} min "
                    "left)"
                )
        finally:
            processes.stop()
            pool.shutdown(cancel_futures=True)
    return rows


def check_tests(
    tests: tuple[str, ...], trees: SimpleQueue, processes: Processes, timeout: float
) -> None:
    """Run tests without a fault; raise `MutationError` if one fails."""
    tree = trees.get()
    result, node, output = run_tests(tree, tests, timeout, processes, None)
    trees.put(tree)
    if result != "survived":
        raise MutationError(
            f"without a fault the tests end with {result} at {node or 'no test'}, expected them to "
            f"pass: mend them first\n{output[-3000:]}"
        )


def show(text: str) -> None:
    """Print progress, apart from the result table."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (a program)


def print_table(mutations: list[Mutation], rows: dict[str, dict[str, str]]) -> None:
    """Print id, result and the test that caught each fault, in aligned columns."""
    names = ("id", "result", "caught_by")
    lines = [names, *(tuple(rows[each.id][name] for name in names) for each in mutations)]
    widths = [max(len(line[column]) for line in lines) for column in range(2)]
    for line in lines:
        print(f"{line[0]:{widths[0]}}  {line[1]:{widths[1]}}  {line[2]}".rstrip())  # noqa: T201


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these faults only")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (default: 1)")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="SECONDS",
                        help="for the tests of one fault (default: 300)")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="run faults that did not change, too")
    parser.add_argument("--unchecked", action="store_true",
                        help="do not run the tests without a fault first")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help=f"result table (default: {TABLE})")  # fmt: skip
    options = parser.parse_args(arguments)
    table = (options.output or root / TABLE).resolve()
    begin = time.monotonic()
    try:
        every = read_mutations(root)
        chosen = choose(every, options.only)
        for each in chosen:
            each.apply((root / each.file).read_text(encoding="utf-8"))
        rows = read_table(table)
        pending = [
            each for each in chosen if options.again or not has_result(each, rows, root)
        ]  # fmt: skip
        show(f"{len(pending)} faults to run, {len(chosen) - len(pending)} have a result already")
        if pending:
            rows = run_all(
                pending, root, table, jobs=max(1, options.jobs), timeout=options.timeout,
                every=every, is_checked=not options.unchecked,
            )  # fmt: skip
    except (MutationError, OSError) as error:
        show(f"mutate: {error}")
        return 2
    except KeyboardInterrupt:
        show(f"mutate: stopped; run it again to go on. The results so far are in {table}")
        return 2
    print_table(chosen, rows)
    lost = [each.id for each in chosen if not is_caught(each, rows[each.id])]
    print(  # noqa: T201
        f"\n{len(chosen) - len(lost)} of {len(chosen)} faults were caught "
        f"({time.monotonic() - begin:.0f} s)."
        + (f" Not caught: {', '.join(lost)}." if lost else "")
    )
    print(f"The results are in {table}")  # noqa: T201
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

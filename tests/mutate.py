"""Mutation testing: apply one small fault at a time and check that the tests catch it.

    python tests/mutate.py [--only ID ...] [--jobs N] [--timeout SECONDS] [--again] [-o FILE]

The faults are listed in `tests/mutations.toml`. Each names a file, a text that occurs exactly once
in it, the text that replaces it, and the test files that should fail. The program copies sources
and tests to a temporary folder per job; the working tree is never edited. There it

1. runs the listed tests once without a fault, which must pass,
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
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/mutations.toml"
TABLE = "tests/mutations.csv"
COPIED = ("src", "tests", "examples", "experiments", "benchmarks", "conftest.py", "pyproject.toml")
COLUMNS = ("id", "room", "file", "fault", "result", "caught_by", "fingerprint")
DEFAULT_TIMEOUT = 300.0  # seconds per fault
NOT_COLLECTED = 2  # the exit code of pytest -x
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


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

    def is_caught(self, row: dict[str, str]) -> bool:
        """Return whether a row of the table says that a test caught the fault."""
        return row["result"] == "caught" or (row["result"] == "broken" and self.import_error)


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
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for each in mutations:
            if each.id in rows:
                entry = {"room": each.room, "file": each.file, "fault": each.fault}
                writer.writerow(rows[each.id] | entry)
    temporary.replace(path)


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


def run_tests(
    tree: Path, tests: tuple[str, ...], timeout: float, cache: Path | None = None
) -> tuple[str, str, str]:
    """Run tests in a copy; return the result, the test that failed first, and the output."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # no test needs them, and they take a second
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    # Spark takes half a minute to start, and every test on it runs on faster engines, too.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=short", "-k", "not spark",
               "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tree, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, process_group=0,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the tests and their children
            return "timeout", "", ""
    if process.returncode == 0:
        return "survived", "", output
    failure = _FAILURE.search(output)
    is_caught = failure is not None and process.returncode != NOT_COLLECTED
    return "caught" if is_caught else "broken", failure[1] if failure else "", output


def run_mutation(mutation: Mutation, tree: Path, timeout: float) -> tuple[str, str]:
    """Apply a fault in a copy and run its tests; return the result and the test that failed."""
    path = tree / mutation.file
    source = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
        cache = Path(folder) if "/_kernels/" in mutation.file else None
        try:
            path.write_text(mutation.apply(source), encoding="utf-8")
            return run_tests(tree, mutation.tests, timeout, cache)[:2]
        finally:
            path.write_text(source, encoding="utf-8")


def run_all(
    pending: list[Mutation], root: Path, table: Path, *, jobs: int, timeout: float,
    every: list[Mutation],
) -> dict[str, dict[str, str]]:  # fmt: skip
    """Run faults, write the table after each, and return its rows by id."""
    rows, trees = read_table(table), SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutations-") as temporary:
        tree = copy_tree(root, Path(temporary) / "job-0")
        check_tests(tree, pending, timeout)
        trees.put(tree)
        for job in range(1, jobs):
            trees.put(copy_tree(root, Path(temporary) / f"job-{job}"))

        def work(mutation: Mutation) -> tuple[str, str]:
            tree = trees.get()
            try:
                return run_mutation(mutation, tree, timeout)
            finally:
                trees.put(tree)

        pool = ThreadPoolExecutor(jobs)
        try:
            futures = {pool.submit(work, each): each for each in pending}
            for n_done, future in enumerate(as_completed(futures), 1):
                mutation, (result, node) = futures[future], future.result()
                values = (mutation.id, mutation.room, mutation.file, mutation.fault, result, node,
                          mutation.fingerprint(root))  # fmt: skip
                rows[mutation.id] = dict(zip(COLUMNS, values, strict=True))
                write_table(table, every, rows)
                show(f"[{n_done}/{len(pending)}] {result:8} {mutation.id}")
        finally:
            pool.shutdown(cancel_futures=True)
    return rows


def check_tests(tree: Path, mutations: list[Mutation], timeout: float) -> None:
    """Run the tests of faults without a fault; raise `MutationError` if one fails."""
    tests = tuple(dict.fromkeys(test for each in mutations for test in each.tests))
    show(f"Running the tests without a fault first: {len(tests)} files or single tests")
    result, node, output = run_tests(tree, tests, timeout * len(tests))
    if result != "survived":
        raise MutationError(
            f"without a fault the tests end with {result} at {node or 'no test'}, expected them to "
            f"pass: mend them first\n{output[-3000:]}"
        )


def show(text: str) -> None:
    """Print progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (a program)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these faults only")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (default: 1)")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="SECONDS",
                        help="for the tests of one fault (default: 300)")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="run faults that did not change, too")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help=f"result table (default: {TABLE})")  # fmt: skip
    options = parser.parse_args(arguments)
    table = (options.output or root / TABLE).resolve()
    try:
        every = read_mutations(root)
        chosen = choose(every, options.only)
        for each in chosen:
            each.apply((root / each.file).read_text(encoding="utf-8"))
        rows = read_table(table)
        pending = [
            each
            for each in chosen
            if options.again
            or each.id not in rows
            or not each.is_caught(rows[each.id])
            or rows[each.id]["fingerprint"] != each.fingerprint(root)
        ]
        show(f"{len(pending)} faults to run, {len(chosen) - len(pending)} have a result already")
        if pending:
            rows = run_all(
                pending, root, table, jobs=max(1, options.jobs), timeout=options.timeout,
                every=every,
            )  # fmt: skip
    except (MutationError, OSError) as error:
        show(f"mutate: {error}")
        return 2
    lost = [each.id for each in chosen if not each.is_caught(rows[each.id])]
    print(f"{len(chosen) - len(lost)} of {len(chosen)} faults were caught.")  # noqa: T201
    print(f"Not caught: {', '.join(lost) or 'none'}. The results are in {table}")  # noqa: T201
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

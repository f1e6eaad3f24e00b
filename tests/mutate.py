"""Mutation testing: apply one small fault at a time and check that the tests catch it.

    python tests/mutate.py [--only ID ... | --share N [--first K]] [--jobs N] [--timeout SECONDS]

The faults are listed in `tests/mutations.toml`. Each names a file, a text that occurs exactly once
in it, the text that replaces it, and the test files that should fail. The program copies sources
and tests to a temporary folder per job; the working tree is never edited. There it

1. applies one fault, runs its tests with ``-x``, and restores the file,
2. prints the result of each fault, with its seconds and the test that failed,
3. runs all tests that failed again, without a fault: now they must pass.

Results
-------
caught
    A test failed: an assertion, or an exception while the test or its fixture ran.
survived
    All listed tests passed.
broken
    The tests could not be collected (an import error, say): it would be noticed without any test.
timeout
    The tests did not end in time.

Each copy has its own cache of compiled kernels, so only a fault in a kernel compiles again, into a
cache of its own.

``--share 8`` runs every eighth fault, always the same ones, so that CI does not depend on
chance. ``--first 3`` begins with the third.

The exit code is 0 if at least 95 % of the faults were caught, 1 if fewer, and 2 if the program
could not run. One fault that is not caught is allowed in any selection without ``--only``.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/mutations.toml"
COPIED = ("src", "tests", "examples", "experiments", "benchmarks", "conftest.py", "pyproject.toml")
MIN_SCORE = 0.95  # the share of faults that are caught
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


def read_mutations(root: Path = ROOT) -> list[Mutation]:
    """Return the faults of `tests/mutations.toml`, in their order."""
    entries = tomllib.loads((root / LIST).read_text(encoding="utf-8"))["mutation"]
    mutations = [Mutation(**(entry | {"tests": tuple(entry["tests"])})) for entry in entries]
    repeated = [name for name, count in Counter(each.id for each in mutations).items() if count > 1]
    if repeated:
        raise MutationError(f"{LIST} has the id {repeated[0]!r} twice, expected different ids")
    return mutations


def choose(
    mutations: list[Mutation], ids: list[str] | None, share: int = 1, first: int = 1
) -> list[Mutation]:
    """Return the faults with these ids; without ids, every `share`-th one."""
    if not ids:
        return mutations[first - 1 :: share]
    unknown = sorted(set(ids) - {each.id for each in mutations})
    if unknown:
        raise MutationError(f"no fault has the id {unknown[0]!r}, expected one of {LIST}")
    return [each for each in mutations if each.id in ids]


def copy_tree(root: Path, folder: Path) -> Path:
    """Copy sources and tests to a folder, and compile them to files that are checked by content.

    Python compares times and sizes by default, and a fault may change neither.
    """
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=ignored)
        elif (root / name).exists():
            shutil.copy2(root / name, folder / name)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, "src", "tests"], cwd=folder, check=True)
    return folder


def run_tests(
    tree: Path, tests: Sequence[str], timeout: float, kernels: str = "kernels"
) -> tuple[str, str, str]:
    """Run tests in a copy; return the result, the test that failed first, and the output.

    `kernels` is the folder of compiled kernels.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # no test needs them, and they take a second
        "NUMBA_CACHE_DIR": str(tree / kernels),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
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


def check_tests(tests: Sequence[str], tree: Path, timeout: float) -> None:
    """Run tests without a fault; raise `MutationError` if one fails."""
    result, node, output = run_tests(tree, tests, timeout * len(tests))
    if result != "survived":
        raise MutationError(
            f"without a fault the tests end with {result} at {node or 'no test'}, expected them to "
            f"pass: mend them first\n{output[-3000:]}"
        )


def run_mutation(mutation: Mutation, tree: Path, timeout: float) -> tuple[str, str]:
    """Apply a fault in a copy and run its tests; return the result and the test that failed."""
    path = tree / mutation.file
    source = path.read_text(encoding="utf-8")
    kernels = "faulty kernels" if path.parent.name == "_kernels" else "kernels"
    try:
        path.write_text(mutation.apply(source), encoding="utf-8")
        return run_tests(tree, mutation.tests, timeout, kernels)[:2]
    finally:
        path.write_text(source, encoding="utf-8")
        shutil.rmtree(tree / "faulty kernels", ignore_errors=True)


def run_all(
    mutations: list[Mutation], root: Path, *, jobs: int, timeout: float
) -> dict[str, tuple[str, str]]:
    """Run faults, print the result of each, and return result and failed test by id."""
    results, trees = {}, SimpleQueue()
    with (
        tempfile.TemporaryDirectory(prefix="mutations-") as temporary,
        ThreadPoolExecutor(jobs) as pool,
    ):
        first = copy_tree(root, Path(temporary) / "job-0")
        for job in range(1, jobs):
            trees.put(Path(shutil.copytree(first, first.with_name(f"job-{job}"))))
        trees.put(first)

        def work(function, *arguments):
            tree = trees.get()
            try:
                start = time.monotonic()
                return function(*arguments, tree, timeout), time.monotonic() - start
            finally:
                trees.put(tree)

        try:
            futures = {pool.submit(work, run_mutation, each): each.id for each in mutations}
            for n_done, future in enumerate(as_completed(futures), 1):
                (result, node), seconds = future.result()
                name = futures[future]
                results[name] = result, node
                show(f"[{n_done}/{len(mutations)}] {result:8} {name} ({seconds:.0f} s) {node}")
            nodes = [node for result, node in results.values() if result == "caught"]
            tests = sorted({node.removeprefix("tests/").partition("[")[0] for node in nodes})
            show(f"Running the {len(tests)} tests that failed again, without a fault")
            parts = filter(None, (tests[job::jobs] for job in range(jobs)))
            list(pool.map(lambda part: work(check_tests, part), parts))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results


def show(text: str) -> None:
    """Print progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (a program)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these faults only")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="run every N-th fault")
    parser.add_argument("--first", type=int, default=1, metavar="K",
                        help="the first fault of the share, from 1")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2, help="copies side by side (default: 2)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS",
                        help="for the tests of one fault (default: 300)")  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        mutations = choose(
            read_mutations(root), options.only, max(1, options.share), max(1, options.first)
        )
        for each in mutations:
            each.apply((root / each.file).read_text(encoding="utf-8"))
        results = run_all(mutations, root, jobs=max(1, options.jobs), timeout=options.timeout)
    except (MutationError, OSError) as error:
        show(f"mutate: {error}")
        return 2
    lost = [f"{each.id} ({results[each.id][0]})" for each in mutations
            if results[each.id][0] != "caught"]  # fmt: skip
    n_caught = len(mutations) - len(lost)
    n_allowed = 0 if options.only else max(1, int((1 - MIN_SCORE) * len(mutations)))
    print(f"{n_caught} of {len(mutations)} faults were caught.")  # noqa: T201
    print(f"Not caught: {', '.join(lost) or 'none'}.")  # noqa: T201
    return 0 if len(lost) <= n_allowed else 1


if __name__ == "__main__":
    sys.exit(main())

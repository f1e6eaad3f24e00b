"""Fuzz the readers of files that are not tables: what a stranger's file says is checked or refused.

    python tests/fuzz_files.py SECONDS [SEED]

Rankers, propensities, click logs, grids and states of training runs are written, changed in one to
three places and read again: bits and bytes anywhere, and values of JSON, TOML, Parquet and NumPy
with a new checksum, so that what comes after the checksum is reached. Each has to be read and then
give numbers within bounds, or be rejected with one sentence. It runs in a process of its own:
another exception, a crash, and an input that takes 300 seconds end it, with the command that
repeats the input.
"""

import contextlib
import copy
import faulthandler
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from functools import cache
from itertools import count
from pathlib import Path

import made_rankers
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from countersample import ClickLog, load_ranker, synthetic
from countersample.clicks import PositionBias, simulate_clicks
from countersample.errors import CounterSampleError
from countersample.export import export
from countersample.propensity import (
    ContextPropensities,
    Propensities,
    TrustPropensities,
    load_propensities,
)
from countersample.rankers.files import load_scorer
from countersample.rankers.task import WarmStart
from countersample.study import grids
from countersample.study.experiment import load_grid
from countersample.training import train

LONGEST = 300  # seconds that an input may take
EVIL = [
    None, True, 0, -1, 1, 7, 2**31, 2**63, 10**400, -(2**31), 0.5, -1.5, 1e-320, 1e300,
    float("nan"), float("inf"), "", "a", "nan", "\0", "../../x", "<script>alert(1)</script>",
    "a\nb", "😀", "\ud800", "x" * 5000, [], {}, [[]], [{}], [0], [1.0], [[1.0, 2.0]], ["a"],
    {"a": 1}, [None], [1, "a"], [[1], [2, 3]], [0] * 1000, list(range(8)),
]  # fmt: skip


# -- changing ------------------------------------------------------------------------------------


def change_bytes(rng, data):
    """Return bytes with bits flipped, or parts cut out, doubled or put elsewhere."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        at, other = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        length = rng.choice([1, 2, 4, 16, 100])
        kind = rng.randrange(4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at : at + rng.choice([0, length])] = data[other : other + length]
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


def places(value, path=()):
    """Yield the path of every value within a value; of long lists, of some."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in {*range(min(3, len(value))), len(value) // 2, len(value) - 1} - {-1}:
            if index < len(value):
                yield from places(value[index], (*path, index))


def change_value(rng, value):
    """Return a copy of a JSON value with some of its parts replaced, removed or doubled."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        result = [path for path in places(value) if path]
        if not result:
            return value
        # Deep ones are many: each level has its turn.
        depth = rng.choice(sorted({len(path) for path in result}))
        *way, last = rng.choice([path for path in result if len(path) == depth])
        within = value
        for key in way:
            within = within[key]
        kind = rng.randrange(5)
        if kind == 0:
            del within[last]
        elif kind == 1 and isinstance(within, list):
            within.insert(last, copy.deepcopy(within[last]))
        elif kind == 2 and isinstance(within[last], int | float):
            within[last] = rng.choice([within[last] + 1, -within[last], within[last] * 1000])
        else:
            within[last] = copy.deepcopy(rng.choice(EVIL))
    return value


def deep(rng):
    """Return JSON that is nested deeply."""
    levels = rng.choice([50, 99, 200, 900, 100_000])
    opened, closed = rng.choice([("[", "]"), ('{"a":', "}")])
    return opened * levels + "1" + closed * levels


def change_text(rng, data, value, write):
    """Return the bytes of a file of JSON, changed as text or as a value."""
    kind = rng.randrange(10)
    if kind < 2:
        return change_bytes(rng, data)
    if kind == 2:
        return data.replace(b": ", b": " + deep(rng).encode() + b', "more": ', 1)
    return write(change_value(rng, value))


# -- what there is -------------------------------------------------------------------------------


@cache
def dataset(*, missing=False):
    """Return the items that rankers score."""
    rng = np.random.default_rng(0)
    made = synthetic("tiny", n_queries=4, rng=0)
    features = made_rankers.some_features(rng, made.n_items)
    return made.with_features(made_rankers.with_holes(features, rng) if missing else features)


@cache
def ranker_contents():
    """Return what files of every kind of ranker have, with and without what a file may have."""
    ways = (None, "minmax", "query-minmax", "root-minmax")
    plain = [
        made_rankers.content(kind, how, missing=missing)
        for kind in made_rankers.KINDS
        for how in ways
        for missing in (False, True)
    ]
    bent = [
        made_rankers.content(kind, how, transform)
        for kind in made_rankers.KINDS
        for how, transform in (("standard", "log"), ("query-minmax", "quantile"), (None, "log"))
    ]
    result = plain + bent
    return [*result, *map(made_rankers.with_encoder, result)]


def raw_table(encoder):
    """Return a table with the columns of an encoder."""
    made = {"number": [0.5, 2.0, -1.0], "date": ["2026-01-01"] * 3, "category": ["a", None, "c"]}
    return pa.table(
        {**{each.name: made[each.kind] for each in encoder.columns}, "query_id": [1, 1, 2]}
    )


def ranker(rng, folder):
    content = rng.choice(ranker_contents())
    path = folder / "ranker.json"
    path.write_bytes(change_text(rng, made_rankers.as_file(content), content, made_rankers.as_file))
    data = rng.choice([dataset(), dataset(missing=True)])
    read = 0
    with contextlib.suppress(CounterSampleError):
        loaded = load_scorer(path)
        read = 1
        ranks = loaded.rank(data)
        for query in range(data.n_queries):
            own = np.sort(ranks[data.offsets[query] : data.offsets[query + 1]])
            assert np.array_equal(own, np.arange(1, len(own) + 1))
    with contextlib.suppress(CounterSampleError):
        loaded = load_ranker(path)
        read = 1
        repr(loaded)
        if loaded.preprocessing_.encoder is not None:
            result = loaded.rank_frame(raw_table(loaded.preprocessing_.encoder))
            assert np.isfinite(result["score"].to_numpy()).all()
        loaded.save(folder / "again.json")
        load_ranker(folder / "again.json")
        if rng.random() < 0.3:
            to = rng.choice(["solr", "elasticsearch", "opensearch"])
            card = rng.choice(["markdown", "html"])
            export(loaded, folder / "model.json", to=to, card=card)
        if rng.random() < 0.3:  # what training would go on from
            warm = WarmStart.of(loaded)
            warm.check(data, loaded)
            loaded._fit_imputer(data, warm)
            warm.scorer_for(data)
        assert np.isfinite(loaded.predict(data)).all()
    return read


@cache
def propensity_contents():
    """Return what files of every kind of propensities have."""
    columns = {"low": [1, 0.4, 0.1], "high": [1, 0.6, 0.3], "n_impressions": [9, 9, 9]}
    curve = Propensities([1, 0.5, 0.2], method="pivot", notes=("a note",), **columns)
    by_context = ContextPropensities({"phone": curve, "desk": curve}, {"tablet": "too few"})
    zero = [0.0, 0.0, 0.0]
    trust = TrustPropensities(
        alpha=[1, 0.5, 0.2], alpha_low=columns["low"], alpha_high=columns["high"],
        beta=[0.3, 0.1, 0], beta_low=zero, beta_high=[0.5, 0.5, 0.5], n_impressions=[9, 9, 9],
        p_value=0.01,
    )  # fmt: skip
    return [json.loads(json.dumps(each.to_dict())) for each in (curve, by_context, trust)]


def as_json(value):
    return json.dumps(value, indent=1).encode()


def propensities(rng, folder):
    kept = rng.choice(propensity_contents())
    path = folder / "propensities.json"
    path.write_bytes(change_text(rng, as_json(kept), kept, as_json))
    with contextlib.suppress(CounterSampleError):
        result = load_propensities(path)
        "".join(result.notes)
        result._repr_html_()
        result.to_frame("pyarrow")
        result.save(folder / "again.json")
        if hasattr(result, "sentence"):
            assert isinstance(result.sentence, str)
        if hasattr(result, "bias"):
            values = result.bias.propensity([1, 2, 999])
        else:
            values, by_chance = result.examination_of([1, 2, 999], ["phone", "desk", "no"])
            assert not np.isinf(by_chance).any()
        known = values[~np.isnan(values)]
        assert ((known >= 0) & (known <= 1)).all(), values
        return 1
    return 0


@cache
def clicked():
    """Return labelled data, and a log of clicks on it with all its columns."""
    data = synthetic("tiny", n_queries=8, rng=0)
    log = simulate_clicks(data, data.features[:, 0], 50, bias=PositionBias(), rng=0)
    ones = np.ones(len(log))
    return data, log.replace(
        impressions=ones, examination=log.propensity, sessions=ones, session=np.arange(len(log)),
        position=np.arange(1, len(log) + 1), count=ones, n_sessions=1000,
    )  # fmt: skip


def change_table(rng, table):
    """Return a Parquet table with another note, other values, or columns of other types."""
    kind = rng.randrange(4)
    if kind == 0:
        _, log = clicked()
        note = {"schema_version": 1, "dataset": log.fingerprint, "n_sessions": log.n_sessions}
        text = deep(rng).encode() if rng.random() < 0.1 else as_json(change_value(rng, note))
        return table.replace_schema_metadata({b"countersample": text})
    index = rng.randrange(table.num_columns)
    name, values = table.column_names[index], table.column(index).to_pylist()
    if kind == 1:
        values[rng.randrange(len(values))] = rng.choice(EVIL)
    elif kind == 2:
        values = [rng.choice(EVIL)] * len(values)
    else:
        types = [pa.int8(), pa.float16(), pa.string(), pa.bool_(), pa.null(),
                 pa.list_(pa.int64()), pa.dictionary(pa.int32(), pa.string())]  # fmt: skip
        column = pa.nulls(len(values), rng.choice(types))
        with contextlib.suppress(pa.ArrowException):
            column = table.column(index).cast(column.type)
        return table.set_column(index, name, column)
    with contextlib.suppress(pa.ArrowException, OverflowError, ValueError, TypeError):
        return table.set_column(index, name, pa.array(values))
    return table


def click_log(rng, folder):
    data, log = clicked()
    path = folder / "log.parquet"
    log.save(path)
    if rng.random() < 0.5:
        path.write_bytes(change_bytes(rng, path.read_bytes()))
    else:
        table = parquet.read_table(path)
        for _ in range(rng.choice([1, 1, 2])):
            table = change_table(rng, table)
        with contextlib.suppress(pa.ArrowException):  # what cannot be written is no file
            parquet.write_table(table, path)
    with contextlib.suppress(CounterSampleError):
        result = ClickLog.load(path, data)
        assert (result.query < data.n_queries).all()
        assert (result.item < data.query_sizes[result.query]).all()
        assert ((result.propensity > 0) & (result.propensity <= 1)).all()
        repr(result)
        result._repr_html_()
        return 1
    return 0


_TOKEN = re.compile(r'"[^"\n]*"|[\w.+-]+|[\[\]{}=,]')
_TOKENS = [
    '""', "0", "-1", "1e400", "nan", "true", "1979-05-27", "9" * 5000, "[]", "[[]]", "{}",
    '["a", 1]', '{ name = [], plan = [], unit = [] }', '"../../x"', '"\\u0000"', "=", "[", "]",
    "[[claims]]", "[settings]", "[" * 5000, "'''", "claims = 3\n", "vary = 1\n", "\n",
]  # fmt: skip


@cache
def grid_texts():
    """Return the grids of the package."""
    return [grids.path_of(name).read_text("utf-8") for name in grids.names()]


def change_tokens(rng, text):
    """Return TOML with some of its tokens or lines changed."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        result = list(_TOKEN.finditer(text))
        if not result:
            return text
        here, other = rng.choice(result), rng.choice(result)
        put = rng.choice([other[0], "", here[0] * 2, *rng.sample(_TOKENS, 4)])
        text = text[: here.start()] + put + text[here.end() :]
    return text


def grid(rng, folder):
    path = folder / "own.toml"
    text = rng.choice(grid_texts())
    if rng.random() < 0.2:
        path.write_bytes(change_bytes(rng, text.encode()))
    else:
        path.write_text(change_tokens(rng, text), "utf-8")
    with contextlib.suppress(CounterSampleError):
        load_grid(path, rng.choice(["smoke", "paper"]))
        return 1
    return 0


STATE = {"learning_rate": 0.01, "steps": 12, "optimizer": "adam", "checkpoints": 3}


@cache
def state_content():
    """Return the members of the file of a training run, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.npz")
        train(*clicked(), **STATE, rng=0, resume=path)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def training_state(rng, folder):
    parts = dict(state_content())
    note = json.loads(np.load(io.BytesIO(parts["note.npy"])).tobytes())
    note["step"] = rng.choice([0, 6, 12])  # most continue
    if rng.random() < 0.3:
        note = change_value(rng, note)
    file = io.BytesIO()
    np.save(file, np.frombuffer(as_json(note), np.uint8))
    parts["note.npy"] = file.getvalue()
    if rng.random() < 0.5:
        name = rng.choice(list(parts))
        parts[name] = change_bytes(rng, parts[name])
    path = folder / "state.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    if rng.random() < 0.2:
        path.write_bytes(change_bytes(rng, path.read_bytes()))
    data, log = clicked()
    with contextlib.suppress(CounterSampleError):
        result = train(data, log, **STATE, rng=0, resume=path)
        assert result.coef.shape == result.average_coef.shape == (data.n_features,)
        return 1
    return 0


KINDS = [ranker, ranker, propensities, click_log, grid, training_state]


# -- running -------------------------------------------------------------------------------------


def say(what):
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run_one(seed, number):
    """Change one file and read it; return its kind, and whether it was read."""
    rng = random.Random(f"{seed}-{number}")  # noqa: S311 (no secret)
    kind = KINDS[number % len(KINDS)]
    with tempfile.TemporaryDirectory() as folder:
        return kind.__name__, kind(rng, Path(folder))


def run(seconds, seed):
    """Change files for so long, and say of each, before it is read, which it is."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    ends, counts, read = time.monotonic() + seconds, Counter(), Counter()
    for number in count():
        if time.monotonic() >= ends:
            break
        say(number)
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        try:
            kind, was_read = run_one(seed, number)
        except Exception:  # noqa: BLE001 (whatever it is, it is a fault)
            traceback.print_exc()
            sys.exit(1)
        counts[kind] += 1
        read[kind] += was_read
    summary = ", ".join(f"{n:,} {kind} ({read[kind]:,} read)" for kind, n in counts.items())
    say(f"{counts.total():,} files: {summary}")


def main():
    """Run in a process of its own, so that a crash is seen."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = sys.argv[2] if len(sys.argv) > 2 else "0"
    if sys.argv[3:] == ["here"]:
        run(seconds, seed)
        return
    if sys.argv[3:]:
        say(run_one(seed, int(sys.argv[3])))
        return
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, __file__, str(seconds), seed, "here"]
        code = subprocess.run(command, stdout=output, check=False).returncode
        output.seek(0)
        last = output.read().splitlines()[-1]
    if code:
        sys.exit(f"ended with {code}; again: python tests/fuzz_files.py 0 {seed} {last}")
    say(last)


if __name__ == "__main__":
    main()

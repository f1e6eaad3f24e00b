"""What columns of tables become as features: learned, applied, saved, and refused."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from countersample.data.encoder import (
    MAX_CATEGORICAL_VALUES,
    MAX_VALUES,
    MIN_ROWS,
    EncodedColumn,
    FeatureEncoder,
    encode_columns,
    learn_encoder,
)
from countersample.errors import DataError, ParameterError

N = 4 * MIN_ROWS
NAN = float("nan")
DAY = dt.date(2026, 3, 1)
LAST = dt.date(9999, 12, 31)
NOON = dt.datetime(2026, 3, 1, 12)  # noqa: DTZ001 (with and without a zone)


def learned(columns, **options):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return learn_encoder(dict.fromkeys(table.column_names, table), **options)


def repeated(*values, type=None):  # noqa: A002 (Arrow's name for it)
    return pa.array(list(values) * (N // len(values)), type)


@pytest.mark.parametrize(
    ("column", "first"),
    [
        (repeated(3, None, type=pa.int8()), 3),
        (repeated(2**63 + 2**40, 1, type=pa.uint64()), 2**63 + 2**40),
        (repeated(2.5, NAN), 2.5),
        (repeated(np.float16(2.5), np.float16(1), type=pa.float16()), 2.5),
        (repeated(True, None), 1),
        (repeated(Decimal("1.25"), None), 1.25),
        (repeated(Decimal("1.25"), type=pa.decimal256(60, 2)), 1.25),
        (repeated(7, 8).dictionary_encode(), 7),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_numbers_are_features_as_they_are(column, first):
    encoder = learned({"a": column}).encoder
    assert encoder.columns == (EncodedColumn("a", "number"),)
    assert encoder.has_only_numbers
    result = encoder.transform(pa.table({"a": column}))
    assert result.dtype == np.float32
    assert result[0, 0] == np.float32(first)
    is_missing = [value is None or value != value for value in column.to_pylist()]  # noqa: PLR0124
    assert np.isnan(result[:, 0]).tolist() == is_missing


@pytest.mark.parametrize(
    ("column", "reference", "ages"),
    [
        (repeated(DAY, DAY - dt.timedelta(30), None, None), "2026-03-01", [0, 30, NAN]),
        (repeated(DAY, type=pa.date64()), "2026-03-01", [0]),
        (repeated(NOON, type=pa.timestamp("ns")), "2026-03-02", [0.5]),
        (repeated(NOON, type=pa.timestamp("s", "America/New_York")), "2026-03-02", [0.5]),
        (repeated("2026-03-01", "2026-02-28T12:00:00Z", "2026-03-01 06:00:00.5+06:00", None),
         "2026-03-02", [1, 1.5, 1 - 0.5 / 86400, NAN]),
        (repeated("2026-03-01 12:00:00.000000000", "2026-03-01T12:00Z"), "2026-03-02", [0.5, 0.5]),
        (repeated(LAST, DAY), "9999-12-31", [0, (LAST - DAY).days]),
    ],
)  # fmt: skip
def test_dates_are_ages_in_days(column, reference, ages):
    encoder = learned({"since": column}).encoder
    assert encoder.columns == (EncodedColumn("since", "date", reference=reference),)
    result = encoder.transform(pa.table({"since": column}))[: len(ages), 0]
    np.testing.assert_array_equal(result, np.float32(ages))
    later = learned({"since": column}, reference="2027-01-01").encoder
    assert later.columns[0].reference == "2027-01-01"


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_text_of_few_values_becomes_indicators(type_):
    values = ["b, \n\0", "é\u202e=", None, ""]
    column = repeated(*values).cast(type_)
    encoder = learned({"color": column}).encoder
    assert encoder.feature_names == ("color=b, \n\0", "color=é\u202e=")  # in the order of the text
    result = encoder.transform(pa.table({"color": column}))
    assert result[:4].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]
    unknown = encoder.transform(pa.table({"color": ["B", None]}))
    assert unknown.tolist() == [[0, 0], [0, 0]]


def test_values_of_few_rows_get_no_indicator():
    values = ["often"] * MIN_ROWS + ["rare"] * (MIN_ROWS - 1)
    assert learned({"a": values}).encoder.feature_names == ("a=often",)


def test_columns_without_features_are_listed():
    result = learned(
        {
            "price": repeated(1.0),
            "title": [f"a lamp {row}" for row in range(N)],
            "many": [f"{row % (MAX_VALUES + 1)}-" for row in range(N)],
            "long": repeated("x" * 101),
            "alone": ["a", "b", *[None] * (N - 2)],
            "nothing": pa.nulls(N),
            "empty": pa.nulls(N, pa.float64()),
            "nan": [NAN] * N,
            "blank": [""] * N,
            "tags": [["a"]] * N,
            "wait": pa.array([1] * N, pa.duration("s")),
        }
    )
    assert result.encoder.feature_names == ("price",)
    assert result.left_out == {
        "title": f"text of {N} values",
        "many": f"text of {MAX_VALUES + 1} values",
        "long": "text of long values",
        "alone": f"text, no value in {MIN_ROWS} rows or more",
        **dict.fromkeys(("nothing", "empty", "nan", "blank"), "no value at all"),
        "tags": "of type list<item: string>",
        "wait": "of type duration[s]",
    }
    (told,) = result.warnings
    assert told.startswith(f"Left out of the features: 'title' (text of {N} values), 'many' (")
    assert "and 2 more" in told
    assert not learned({"a": [1]}).warnings


def test_or_refused_as_told():
    columns = {"price": repeated(1.0), "title": [f"a lamp {row}" for row in range(N)]}
    for options in ({"other_columns": "error"}, {"is_chosen": True}):
        with pytest.raises(DataError, match=r"no features can be made of 'title' \(text of 40 v"):
            learned(columns, **options)
    with pytest.raises(DataError, match="no feature is left, expected at least one: 'title'"):
        learned({"title": columns["title"]})
    with pytest.raises(ParameterError, match="other_columns is 'drop', expected one of skip"):
        learned(columns, other_columns="drop")
    for day in ("yesterday", 7):
        with pytest.raises(ParameterError, match=r"ages are counted from is .*, expected one such"):
            learned(columns, reference=day)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (["a", "b", None], ["x=a", "x=b"]),
        ([10, 9, None], ["x=10", "x=9"]),
        ([10.0, 9.0, None], ["x=10", "x=9"]),  # whole numbers with gaps, of pandas
        (pa.array([2**64 - 1, 3, 3], pa.uint64()), ["x=18446744073709551615", "x=3"]),
        (pa.array([Decimal("2.00"), None, None]), ["x=2"]),
    ],
)
def test_columns_named_as_categorical(column, names):
    table = pa.table({"x": column})
    encoder = learned(table, categorical=["x"]).encoder
    assert list(encoder.feature_names) == names
    assert encoder.transform(table).tolist()[:2] == np.eye(2, len(names)).tolist()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (list(range(MAX_CATEGORICAL_VALUES + 1)), "has 201 values, expected 1 to 200"),
        ([None, None], "has 0 values, expected 1 to 200"),
        ([float("inf"), 1.0], "has fractions, expected a column of text or of integers"),
        ([True, False], "is boolean"),
        ([DAY, DAY], r"is date32\[day\], expected a column of text"),
        (["x" * 101], "has a value of 101 characters, expected at most 100"),
    ],
)
def test_columns_that_cannot_be_categorical(column, message):
    with pytest.raises(DataError, match=f"'x' is listed as categorical and {message}"):
        learned({"x": column}, categorical=["x"])


def test_names_that_would_be_there_twice():
    with pytest.raises(DataError, match="two features are called 'a=b'"):
        learned({"a": repeated("b", "c"), "a=b": repeated(1.0)})


def test_text_is_read_as_what_the_column_was():
    encoder = FeatureEncoder(
        (
            EncodedColumn("price", "number"),
            EncodedColumn("since", "date", reference="2026-03-31"),
            EncodedColumn("year", "category", ("2020", "2021")),
        )
    )
    table = pa.table(
        {
            "year": ["2021", "2022", ""],
            "since": ["2026-03-30", " 2026-03-01 ", None],
            "price": [" 1e2", "true", "NA"],
        }
    )
    np.testing.assert_array_equal(
        encoder.transform(table), np.float32([[100, 1, 0, 1], [1, 30, 0, 0], [NAN, NAN, 0, 0]])
    )
    integers = pa.table({"year": [2021], "since": [DAY], "price": [1]})
    assert encoder.transform(integers).tolist() == [[1, 30, 0, 1]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"price": ["1", "1_000"]}, "'price' has '1_000' in row 1 .counted from 0., expected a n"),
        ({"price": [["a"]]}, "'price' is list<item: string>, expected numbers"),
        ({"since": ["2026-02-30"]}, "'since' has '2026-02-30' in row 0 .*expected a date such as"),
        ({"since": [7]}, "'since' is int64, expected dates or times"),
        ({"year": [["a"]]}, "'year' is list<item: string>, expected text or integers"),
        ({"prices": [7]}, "no column 'price' .did you mean 'prices'"),
    ],
)  # fmt: skip
def test_columns_that_are_not_what_they_were(column, message):
    (name,) = column
    kind = {"since": "date", "year": "category"}.get(name, "number")
    known = name.removesuffix("s")
    reference = "2026-01-01" if kind == "date" else ""
    encoder = FeatureEncoder((EncodedColumn(known, kind, ("a",), reference),))
    with pytest.raises(DataError, match=message):
        encoder.transform(pa.table(column))


@pytest.mark.parametrize(
    ("name", "kind", "values", "reference"),
    [
        ("", "number", (), ""),
        ("a", "text", (), ""),
        ("a", "category", (), ""),
        ("a", "category", ("b", ""), ""),
        ("a", "category", ("b", "b"), ""),
        ("a", "date", (), "20260331"),
    ],
)
def test_columns_that_no_table_teaches_are_rejected(name, kind, values, reference):
    with pytest.raises(DataError, match="a column of the encoder has the name"):
        EncodedColumn(name, kind, values, reference)


def test_rows_without_an_item_have_no_category_and_no_number():
    """A missing category is no value of it (0), a missing number or date is NaN."""
    encoder = FeatureEncoder(
        (
            EncodedColumn("color", "category", values=("blue", "red")),
            EncodedColumn("price", "number"),
            EncodedColumn("since", "date", reference="2026-03-31"),
        )
    )
    table = pa.table({"color": ["red"], "price": [2.5], "since": [dt.date(2026, 3, 30)]})
    rows = np.array([0, -1])
    matrix = encode_columns(encoder, 2, dict.fromkeys(encoder.column_names, (table, rows)))
    np.testing.assert_array_equal(matrix, [[0, 1, 2.5, 1], [0, 0, NAN, NAN]])

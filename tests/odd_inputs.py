"""The table of bad and odd inputs: for each a name, the call, and the expected result.

What must happen is either the right answer, which a check looks at, or one sentence, which a pattern describes: it has
to name the argument or file, what was needed, and the fix. `test_odd_inputs.py` goes through the table.
"""

from __future__ import annotations

import datetime
import functools
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse

from kernsift import (
    Block,
    Incomplete,
    Multiscale,
    Result,
    SelectMMD,
    compare,
    relate,
    screen,
    selective_bootstrap,
    topk_pvalues,
)

Check = Callable[[Any], None]


class Odd(NamedTuple):
    """One row: a sentence is expected where `want` is a pattern, else `want` looks at the answer."""

    name: str
    ask: Callable[[], Any]
    want: str | Check


# Plain data, to which the odd is compared -----------------------------------------------------------------------------

ROWS = 30
NAMES = ["a", "b", "c"]
_RNG = np.random.default_rng(20)
X = _RNG.integers(-9, 10, size=(ROWS, 3)).astype(float)
Y = _RNG.integers(-9, 10, size=(ROWS, 3)).astype(float)
Y[:, 1] += 40  # only the second column differs
XF, YF = pd.DataFrame(X, columns=NAMES), pd.DataFrame(Y, columns=NAMES)
WORDS = np.array(["u", "v", "w"])[np.arange(ROWS) % 3]


@functools.cache
def plain() -> Result:
    return compare(X, Y, random_state=0)


def twice(make: Callable[[np.ndarray], Any], **options: Any) -> Callable[[], Result]:
    """Both samples in this form."""
    return lambda: compare(make(X), make(Y), random_state=0, **options)


def pair(one: Any, two: Any, **options: Any) -> Callable[[], Result]:
    return lambda: compare(one, two, random_state=0, **options)


def column(values: Any, other: Any = None, **options: Any) -> Callable[[], Result]:
    """A table with a further column 'z' of these values, in both samples or with others in the second."""
    return lambda: compare(
        XF.assign(z=values), YF.assign(z=values if other is None else other), random_state=0, **options
    )


# Checks ---------------------------------------------------------------------------------------------------------------


def sound(result: Result) -> None:
    """What every answer has to be."""
    for values in (result.pvalues, result.unconditional_pvalues, result.adjusted_pvalues):
        assert np.all((values > 0) & (values <= 1)), values
    assert np.isfinite(result.scores).all()
    if result.effects is not None:
        assert np.all((result.effects >= 0) & (result.effects <= 1))


def close(tolerance: float) -> Check:
    """The plain answer within a relative tolerance."""

    def check(result: Result) -> None:
        sound(result)
        np.testing.assert_allclose(result.scores, plain().scores, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(result.log_pvalues, plain().log_pvalues, rtol=tolerance, atol=tolerance)

    return check


same = close(1e-9)


def finds(*names: str) -> Check:
    """Exactly these are significant."""

    def check(result: Result) -> None:
        sound(result)
        assert {name for name, found in zip(result.names, result.rejected, strict=True) if found} == set(names)

    return check


def nothing_in(name: str) -> Check:
    """'b' is found as ever, and this column has p = 1 and a note."""

    def check(result: Result) -> None:
        finds("b")(result)
        assert result.pvalues[result.names.index(name)] == 1
        assert any("Constant" in note and repr(name) in note for note in result.notes)

    return check


def with_z(stands: bool) -> Check:
    """'z' stands or not, and 'b' as ever."""
    return finds("b", "z") if stands else finds("b")


def called(*names: str) -> Check:
    def check(result: Result) -> None:
        same(result)
        assert result.feature_names == names
        assert all(result.to_html().count("<script>") == 1 for _ in "1")  # its own and no other
        assert len(result.to_text().splitlines()) == len(plain().to_text().splitlines())

    return check


def is_(expected: Any) -> Check:
    def check(answer: Any) -> None:
        assert answer == expected

    return check


def _no_evidence(note: str) -> Check:
    """Every p-value is 1, and a note tells why."""

    def check(result: Result) -> None:
        assert result.all_pvalues.tolist() == [1.0] * len(result.all_pvalues)
        assert any(note in said for said in result.notes)

    return check


def _product(a: np.ndarray, b: np.ndarray) -> Any:
    return (a * b).sum(axis=-1)


def _with_gaps(values: np.ndarray) -> np.ndarray:
    """The values, of which the first rows of each column are missing, one more in each."""
    return np.where(np.arange(len(values))[:, None] <= np.arange(values.shape[1]), np.nan, values)


# Containers -----------------------------------------------------------------------------------------------------------


def _readonly(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def _matrix(values: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(values)


def _coordinates(values: np.ndarray) -> Any:
    """A sparse matrix with two entries for each cell, which add up."""
    row, col = np.indices(values.shape).reshape(2, -1)
    half = values.ravel() / 2
    return sparse.coo_matrix((np.r_[half, half], (np.r_[row, row], np.r_[col, col])), shape=values.shape)


def _nullable(values: np.ndarray, kind: str) -> pd.DataFrame:
    return pd.DataFrame(values, columns=NAMES).astype(kind)


def _frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=NAMES)


CONTAINERS = [
    Odd("list of lists", twice(lambda v: v.tolist()), same),
    Odd("tuple of tuples", twice(lambda v: tuple(map(tuple, v))), same),
    Odd("list of arrays", twice(list), same),
    Odd("list of Python ints", twice(lambda v: [[int(c) for c in row] for row in v]), same),
    Odd("Fortran order", twice(np.asfortranarray), same),
    Odd("negative strides", twice(lambda v: v[::-1].copy()[::-1]), same),
    Odd("every second column of a larger array", twice(lambda v: np.repeat(v, 2, axis=1)[:, ::2]), same),
    Odd("read-only array", twice(_readonly), same),
    Odd("np.matrix", twice(_matrix), same),
    Odd("half precision", twice(lambda v: v.astype(np.float16)), same),
    Odd("single precision", twice(lambda v: v.astype(np.float32)), close(1e-4)),
    Odd("long double", twice(lambda v: v.astype(np.longdouble)), same),
    Odd("big-endian", twice(lambda v: v.astype(">f8")), same),
    Odd("int8, whose differences overflow", twice(lambda v: v.astype(np.int8)), same),
    Odd(
        "int8 at its ends",
        pair(np.array([[-128], [127]] * 9, np.int8), np.array([[127], [-128]] * 9, np.int8)),
        finds(),
    ),
    Odd(
        "uint8 that must not wrap", pair(np.array([[0]] * 20, np.uint8), np.array([[255]] * 20, np.uint8)), finds("x0")
    ),
    Odd("int64 at its ends", column(np.where(np.arange(ROWS) % 2, 2**63 - 1, -(2**63))), with_z(False)),
    Odd("uint64 beyond int64", column(np.arange(ROWS, dtype=np.uint64) + np.uint64(2**63)), with_z(False)),
    Odd("Python ints beyond 64 bits", column([10**30 * i for i in range(ROWS)]), with_z(False)),
    Odd(
        "Python int beyond float64",
        column(pd.Series([10**400, *range(ROWS - 1)], dtype=object)),
        "^X: column 'z'.*beyond float64; rescale",
    ),
    Odd("truth values", column(np.arange(ROWS) % 2 == 0, np.arange(ROWS) < 1), with_z(True)),
    Odd("Decimal", twice(lambda v: [[Decimal(int(c)) for c in row] for row in v]), same),
    Odd("Fraction", twice(lambda v: [[Fraction(int(c), 1) for c in row] for row in v]), same),
    Odd("Decimal infinity", column([Decimal("Infinity")] * ROWS), "^X: infinite values in 'z'; replace or remove"),
    Odd(
        "Decimal NaN", column([Decimal("NaN")] * ROWS, missing="error"), "^X: 30 of 30 rows have missing.*fill them in"
    ),
    Odd(
        "Decimal signalling NaN",
        column([Decimal("sNaN")] * ROWS, missing="error"),
        "^X: 30 of 30 rows have missing.*fill them in",
    ),
    Odd("objects that are numbers", twice(lambda v: v.astype(object)), same),
    Odd("NumPy scalars in lists", twice(lambda v: [[np.float64(c) for c in row] for row in v]), same),
    Odd("zero-dimensional arrays in lists", twice(lambda v: [[np.array(c) for c in row] for row in v]), same),
    Odd("sparse rows", twice(sparse.csr_matrix), same),
    Odd("sparse array", twice(sparse.csc_array), same),
    Odd("sparse matrix with repeated entries", twice(_coordinates), same),
    Odd("sparse lists", twice(sparse.lil_matrix), same),
    Odd(
        "sparse matrix too large to fill",
        twice(lambda _: sparse.csr_array((10**6, 10**4)), estimator="linear"),
        "^X: .*50,000,000 cells.*fewer col",
    ),
    Odd(
        "sparse matrix with NaN",
        pair(sparse.csr_array(np.where(X > 8, np.nan, X)), Y),
        "^X: .* no missing values.*fill",
    ),
    Odd("masked, nothing masked", twice(np.ma.masked_array), same),
    Odd(
        "masked cells",
        pair(np.ma.masked_greater(X, 8), Y, missing="error"),
        "^X: .* rows have missing values.*missing='drop'",
    ),
    Odd("masked cells left out", pair(np.ma.masked_greater(X, 8), Y, missing="drop"), finds("x1")),
    Odd("everything masked", pair(np.ma.masked_all((9, 3)), Y, missing="error"), "^X: 9 of 9 rows have missing.*fill"),
    Odd("pandas", twice(_frame), same),
    Odd("polars", twice(lambda v: pl.DataFrame(v, schema=NAMES)), same),
    Odd("pyarrow", twice(lambda v: pa.table({n: v[:, i] for i, n in enumerate(NAMES)})), same),
    Odd("pyarrow record batch", twice(lambda v: pa.record_batch({n: v[:, i] for i, n in enumerate(NAMES)})), same),
    Odd(
        "pyarrow with the index of a frame, in one of two tables",
        pair(pa.Table.from_pandas(XF.set_index(np.arange(ROWS) % 4)), pa.Table.from_pandas(YF)),
        same,
    ),
    Odd(
        "polars with an index of text that pandas stored",
        twice(
            lambda v: pl.DataFrame(v, schema=NAMES).with_columns(pl.Series("__index_level_0__", [*"0123456789"] * 3))
        ),
        same,
    ),
    Odd(
        "a stream of Arrow data",
        pair(pa.table({"a": X[:, 0]}).to_reader(), pa.table({"a": Y[:, 0]}).to_reader()),
        r"^X: a table in memory is needed, got a stream.*RecordBatchReader.*pass pyarrow.table\(X\)",
    ),
    Odd("pandas beside polars", pair(XF, pl.DataFrame(Y, schema=NAMES)), same),
    Odd("frame beside array", pair(XF, Y), same),
    Odd("nullable integers", twice(lambda v: _nullable(v, "Int64")), same),
    Odd(
        "nullable integers with a gap",
        pair(_nullable(X, "Int64").mask(XF > 8), YF, missing="error"),
        "^X: .* missing values.*'drop'",
    ),
    Odd("nullable floats", twice(lambda v: _nullable(v, "Float64")), same),
    Odd("Arrow-backed pandas", twice(lambda v: _nullable(v, "double[pyarrow]")), same),
    Odd("sparse pandas", twice(lambda v: _nullable(v, "Sparse[float]")), same),
    Odd(
        "mixed float types",
        twice(lambda v: _frame(v).astype({"a": "f4", "b": "i2", "c": "u8"} if v.min() >= 0 else {})),
        same,
    ),
    Odd("row labels that repeat", twice(lambda v: _frame(v).set_axis([7] * ROWS)), same),
    Odd("rows labelled by dates", twice(lambda v: _frame(v).set_axis(pd.date_range("2020", periods=ROWS))), same),
    Odd("columns in another order", pair(XF, YF[["c", "a", "b"]]), same),
    Odd("lazy frame", pair(pl.LazyFrame({"a": [1, 2]}), Y), r"^X: .*lazy frame; call \.collect\(\)"),
    Odd("generator", lambda: compare((row for row in X), Y), "^X: a table with rows and columns.*generator.*2-D array"),
    Odd("set", pair({1, 2, 3}, Y), "^X: a table with rows and columns.*set.*data frame"),
    Odd("dictionary of columns", twice(lambda v: {n: v[:, i] for i, n in enumerate(NAMES)}), same),
    Odd("a class", pair(pd.DataFrame, Y), "^X: a table .* is needed.*type"),
    Odd("a function", pair(len, Y), "^X: a table .* is needed.*builtin"),
    Odd("None", pair(None, Y), "^X: a table with rows and columns is needed, got NoneType"),
    Odd("Y left out", lambda: compare(X), "^Y: .* is needed"),
    Odd("a number", pair(3.5, Y), "^X: a table with rows and columns is needed, got float.*2-D"),
    Odd("a name of nothing", pair("no_such_file.csv", Y), "^X: "),
    Odd("bytes", pair(b"1,2", Y), "^X: .* is needed.*bytes|^X: a table"),
    Odd(
        "three axes",
        pair(np.ones((4, 3, 2)), Y),
        r"^X: .*shape \(4, 3, 2\).*2-D array, such as X.reshape\(len\(X\), -1\)",
    ),
    Odd("no axes", pair(np.array(1.0), Y), r"^X: .*shape \(\).*2-D"),
    Odd("fields", twice(lambda v: np.rec.fromarrays(list(v.T), names=list(NAMES))), same),
    Odd("fields in two dimensions", pair(np.zeros((9, 2), dtype=[("a", "f8")]), Y), "^X: .*fields.*data frame"),
    Odd("list of records", pair([{"a": 1.0}] * 9, Y), "^X: a table is needed, got a list of dicts; pass a data frame"),
    Odd("ragged rows", pair([[1, 2], [3]], Y), "^X: .*rectangular.*rows differ in length"),
    Odd("deeply nested list", pair([[[1]], [[2]]], Y), r"^X: .*shape \(2, 1, 1\).*2-D"),
]


def _lone_ones(sample: int) -> Any:
    values = np.zeros((ROWS, 3))
    values[:, 0], values[0, 1] = X[:, 0] + 20 * sample, sample
    return sparse.csr_array(values)


def _only_third_constant(result: Result) -> None:
    finds("x0")(result)
    assert [note for note in result.notes if "Constant" in note] == ["Constant, so without evidence (p = 1): 'x2'."]


CONTAINERS += [
    Odd("a single value in a sparse column", pair(_lone_ones(0), _lone_ones(1)), _only_third_constant),
]

# Shapes ---------------------------------------------------------------------------------------------------------------

SHAPES = [
    Odd("empty list", pair([], []), "^X: at least 2 rows are needed, got 0; pass more"),
    Odd("no rows", pair(X[:0], Y), "^X: at least 2 rows are needed, got 0; pass more"),
    Odd("one row", pair(X, Y[:1]), "^Y: at least 2 rows are needed, got 1; pass more"),
    Odd("two rows", pair(X[:2], Y[:2]), sound),
    Odd("two rows that are equal", pair(X[[0, 0]], Y[[0, 0]]), sound),
    Odd("two rows against many", pair(X[:2], Y), sound),
    Odd("no columns", pair(X[:, :0], Y[:, :0]), r"^X: at least one column is needed, got a table of shape \(30, 0\)"),
    Odd("empty frame", pair(pd.DataFrame(), YF), "^X: at least one column is needed"),
    Odd("one column", pair(X[:, 1:2], Y[:, 1:2]), finds("x0")),
    Odd("one dimension", pair(X[:, 1], Y[:, 1]), finds("x0")),
    Odd("series", pair(XF["b"], YF["b"]), finds("b")),
    Odd("fewer columns in Y", pair(X, Y[:, :2]), r"^Y: as many columns as in X.*\(30, 3\).*\(30, 2\).*pass the same"),
    Odd(
        "another name in Y", pair(XF, YF.rename(columns={"b": "B"})), r"^Y: .*lacks 'b' \(did you mean 'B'\?\).*rename"
    ),
    Odd("more columns than rows", pair(np.tile(X[:5], 20), np.tile(Y[:5], 20)), sound),
    Odd("the same object twice", lambda: compare(X, X, random_state=0), finds()),
    Odd("equal rows throughout", pair(np.ones((9, 2)), np.ones((9, 2))), finds()),
    Odd("unequal sizes", pair(X[:3], np.tile(Y, (30, 1))), finds("x1")),
    Odd(
        "response shorter than X",
        lambda: relate(X, X[:-1, 0]),
        "^y: one value for each row.*30 rows and y has 29; ch",
    ),
    Odd("response as a column", lambda: relate(X, X[:, :1], random_state=0), finds("x0")),
    Odd("response as a row", lambda: relate(X, X[:, :1].T), "^y: one value for each row.*y has 1;"),
    Odd("response left out", lambda: relate(X, None), "^y: .* is needed.*NoneType"),
    Odd("constant response", lambda: relate(X, np.ones(ROWS)), "^y: the response must vary.*choose another"),
    Odd("response of one level", lambda: relate(X, ["u"] * ROWS), "^y: the response must vary.*choose another"),
    Odd(
        "response of identifiers",
        lambda: relate(X, [f"row {i}" for i in range(ROWS)]),
        "^y: .*classes that repeat.*choose another",
    ),
    Odd(
        "response with a gap",
        lambda: relate(X, [np.nan, *range(29)], missing="error"),
        "^y: 1 of 30 rows have missing.*'drop'",
    ),
    Odd("infinite response", lambda: relate(X, [np.inf, *range(29)]), "^y: infinite values.*replace or remove"),
    Odd("gap left out", lambda: relate(X, [np.nan, *X[1:, 0]], missing="drop", random_state=0), finds("x0")),
    Odd(
        "dates in rows without a response",
        lambda: relate(
            XF.assign(d=[None] * 20 + [f"2020-03-{day:02}" for day in range(1, 11)]),
            [*X[:20, 0], *[np.nan] * 10],
            random_state=0,
        ),
        finds("a"),
    ),
    Odd(
        "dates as response",
        lambda: relate(X, pd.Timestamp("2020") + pd.to_timedelta(X[:, 0], "D"), random_state=0),
        finds("x0"),
    ),
    Odd(
        "labels for fewer rows",
        lambda: relate(XF, ["u", "v"] * 14),
        "^y: X has no column 'u'; it has 'a', 'b', 'c'; pass .*, or one value for each of its 30 rows, not 28",
    ),
    Odd(
        "text as time of a censored response",
        lambda: relate(XF, (WORDS, np.arange(ROWS) % 2)),
        "^y: the time of a censored response must be numbers, but 'time' holds text such as 'u'; pass .time, event.",
    ),
    Odd(
        "strata without a value",
        lambda: compare(XF, YF, strata=(np.full(ROWS, np.nan), np.full(ROWS, np.nan))),
        "^strata: no row is left that has a value",
    ),
    Odd("no such response", lambda: relate(XF, "bb"), "^y: X has no column 'bb'.*pass a column name"),
    Odd("response by name of an array", lambda: relate(X, "b"), "^y: 'b' cannot name columns of X.*data frame"),
    Odd("integer as response", lambda: relate(pd.DataFrame(X).assign(q=X[:, 1]), 1, random_state=0), finds("q")),
    Odd(
        "integers in a list as response",
        lambda: relate(pd.DataFrame(X), [0, 1]),
        r"^y: one value for each row.*to name columns, pass text, as in \['0', '1'\]",
    ),
    Odd(
        "integer as group column",
        lambda: compare(pd.DataFrame(np.r_[X, Y]).assign(g=np.repeat([0, 1], ROWS)).set_axis(range(4), axis=1), by=3),
        finds("1"),
    ),
    Odd(
        "numbers as groups",
        lambda: compare(XF, by=np.arange(ROWS) / 2),
        "^by: a column of groups is needed, but .* different values in 30 rows; choose another column, or ask with relate",
    ),
    Odd(
        "identifiers as groups",
        lambda: compare(XF, by=[f"person {i // 2}" for i in range(ROWS)], group="person 1"),
        finds(),
    ),
    Odd(
        "an identifier of each row as groups",
        lambda: compare(XF, by=[f"person {i}" for i in range(ROWS)]),
        "^by: a column of groups is needed, but .* has 30 different values in 30 rows; choose another column\\.$",
    ),
    Odd(
        "a threshold and a number of features",
        lambda: compare(X, Y, threshold=2.0, k=1),
        "^threshold: selects without a number of features; leave out k=1\\.$",
    ),
    Odd(
        "complex response",
        lambda: relate(X, X[:, 0] * 1j),
        "^y: the response 'y' holds values of type complex128, which cannot be tested; choose another response",
    ),
    Odd("response is all of X", lambda: relate(XF[["b"]], "b"), "^X: no column is left beside the response.*pass more"),
    Odd(
        "numeric response that is text", lambda: relate(X, WORDS, response="numeric"), "^y: .*needs numbers.*'category'"
    ),
    Odd("response kind unknown", lambda: relate(X, WORDS, response="ordinal"), "^response: needs 'auto'.*choose one"),
    Odd("candidates in a list", lambda: screen(X, [Y]), "^candidates: a mapping.*got list; pass a dict"),  # type: ignore[arg-type]
    Odd("no candidates", lambda: screen(X, {}), "^candidates: at least one data set.*add one"),
    Odd(
        "candidate of other width", lambda: screen(X, {"q": Y[:, :2]}), r"^candidates\['q'\]: as many columns.*pass the"
    ),
    Odd("candidate with text", lambda: screen(XF, {"q": YF.assign(a=WORDS)}), r"^candidates\['q'\]: .*numbers.*'drop'"),
    Odd(
        "candidate with a gap",
        lambda: screen(X, {"q": np.where(Y > 48, np.nan, Y)}, missing="error"),
        r"^candidates\['q'\]: .*missing",
    ),
    Odd("candidates named alike", lambda: screen(X, {1: Y, "1": Y}), "^candidates: names must be unique.*rename"),  # type: ignore[dict-item]
    Odd("candidate is the reference", lambda: screen(X, {"q": X, "r": Y}, random_state=0), finds("r")),
]

# Names ----------------------------------------------------------------------------------------------------------------


def names(*given: Any) -> Callable[[], Result]:
    labels = pd.Index(list(given), dtype=object)
    return lambda: compare(XF.set_axis(labels, axis=1), YF.set_axis(labels, axis=1), random_state=0)


NAMED = [
    Odd("repeated names", names("a", "b", "a"), "^X: column names must be unique.*rename"),
    Odd("names equal as text", names(1, "1", 2), "^X: column names must be unique, but '1'.*rename"),
    Odd("numbers as names", names(0, 1, 2), called("0", "1", "2")),
    Odd("None as a name", names(None, "b", "c"), sound),
    Odd("NaN as a name", names(np.nan, "b", "c"), called("nan", "b", "c")),
    Odd("tuples as names", names(("a", 1), ("b", 2), ("c", 3)), called("('a', 1)", "('b', 2)", "('c', 3)")),
    Odd(
        "a tuple as the name of a record", lambda: names(("a", 1), ("b", 2), ("c", 3))()[("b", 2)].name, is_("('b', 2)")
    ),
    Odd("a number as the name of a record", lambda: names(0, 1, 2)()[1].rejected, is_(True)),
    Odd("a number as a name in a result", lambda: 1 in names(0, 1, 2)(), is_(True)),
    Odd("dates as names", names(*pd.date_range("2020-01-01", periods=3)), sound),
    Odd("empty name", names("", "b", "c"), called("", "b", "c")),
    Odd("line breaks in a name", names("a\nb", "x\r\ny", "c"), called("a\nb", "x\r\ny", "c")),
    Odd("markup in a name", names("<script>alert(1)</script>", "b", '"><img src=x>'), sound),
    Odd("a name that writes on terminals", names("\x1b[31mred", "b", "\x07"), called("\x1b[31mred", "b", "\x07")),
    Odd("a name of a million letters", names("a" * 10**6, "b", "c"), sound),
    Odd("a long name in a complaint", pair(XF.rename(columns={"a": "a" * 10**6}), YF), "^Y: .{,1000}rename or drop"),
    Odd("a line break in a complaint", pair(XF.rename(columns={"a": "a\nz"}), YF), "^Y: .*'a z'.*rename or drop"),
    Odd("a lone surrogate in a name", names("\ud800", "b", "c"), sound),
    Odd("names in all scripts", names("größe", "体重", "🙂"), called("größe", "体重", "🙂")),
    Odd("name of a group and a column", pair(XF, YF, groups={"a": ["b"]}), "^groups: 'a' would name two.*rename"),
    Odd("group of nothing", pair(XF, YF, groups={"g": []}), "^groups: group 'g' is empty; give it a column"),
    Odd(
        "group of an unknown column", pair(XF, YF, groups={"g": ["bb"]}), "^groups: .*'bb', which X does not.*name one"
    ),
    Odd("group that is text", pair(XF, YF, groups={"g": "b"}), "^groups: group 'g' must be a list.*brackets"),
    Odd("groups in a list", pair(XF, YF, groups=[["a", "b"]]), "^groups: a mapping.*got list; pass a dict"),
    Odd("column in two groups", pair(XF, YF, groups={"g": ["a"], "h": ["a"]}), "^groups: column 'a'.*leave it in one"),
    Odd("two-level columns", names(*pd.MultiIndex.from_product([["a"], [1, 2, 3]])), sound),
]

# Cells ----------------------------------------------------------------------------------------------------------------

_HALF = np.where(np.arange(ROWS) < 15, "u", "v")
_DAYS = pd.to_datetime(["2020-01-01", "2020-01-02"] * (ROWS // 2))


def scaled(factor: float, shift: float = 0.0) -> Callable[[], Result]:
    return twice(lambda v: v * factor + shift)


CELLS = [
    Odd(
        "NaN",
        pair(np.where(X > 8, np.nan, X), Y, missing="error"),
        r"^X: \d+ of 30 rows have missing values, in columns 'x.*'drop'",
    ),
    Odd("NaN left out", pair(np.where(X > 8, np.nan, X), Y, missing="drop"), finds("x1")),
    Odd(
        "a column of NaN",
        column(np.full(ROWS, np.nan), missing="error"),
        "^X: 30 of 30 rows have missing values, in columns 'z'",
    ),
    Odd(
        "a column of NaN to leave out",
        lambda: compare(XF.assign(z=np.nan), YF.assign(z=1.0), missing="drop"),
        "^X: mis.* leaves 0 of 30 rows.*leave out or fill",
    ),
    Odd(
        "None among numbers",
        column([None, *range(29)], missing="error"),
        "^X: 1 of 30 rows have missing values, in columns 'z'",
    ),
    Odd(
        "pd.NA among objects",
        column(np.array([pd.NA, *range(29)], dtype=object), missing="error"),
        "^X: 1 of 30 rows have missing",
    ),
    Odd(
        "NaT among dates",
        column([pd.NaT, *pd.date_range("2020", periods=29)], missing="error"),
        "^X: 1 of 30 rows have missing values, in columns 'z'",
    ),
    Odd("infinity", pair(np.where(X > 8, np.inf, X), Y), "^X: infinite values in 'x0'.*; replace or remove them"),
    Odd("minus infinity in Y", pair(X, np.where(Y > 48, -np.inf, Y)), "^Y: infinite values in 'x1'; replace or remove"),
    Odd(
        "infinity beside NaN, dropped",
        pair([[np.inf], [np.nan], [1]], [[1], [2]], missing="drop"),
        "^X: infinite values",
    ),
    Odd("times 1e-300", scaled(1e-300), "^X: the values in 'x0', 'x1', 'x2' differ by less than 1e-70.*rescale"),
    Odd("times 1e-60", scaled(1e-60), close(1e-6)),
    Odd("times 1e-30", scaled(1e-30), close(1e-6)),
    Odd("times 1e30", scaled(1e30), close(1e-6)),
    Odd("times 1e60", scaled(1e60), close(1e-6)),
    Odd("times 1e300", scaled(1e300), "^X: numbers beyond 1e70 in 'x0', 'x1', 'x2'.*rescale"),
    Odd("single precision times 1e30", twice(lambda v: (v * 1e30).astype(np.float32)), close(1e-4)),
    Odd("single precision times 1e-30", twice(lambda v: (v * 1e-30).astype(np.float32)), close(1e-4)),
    Odd("shifted by 1e12", scaled(1.0, 1e12), close(1e-6)),
    Odd("shifted by 1e18, where digits are lost", scaled(1.0, 1e18), sound),
    Odd("columns of very different size", twice(lambda v: v * [1e-60, 1.0, 1e60]), close(1e-6)),
    Odd("one outlier of 1e60", column(np.r_[1e60, np.arange(29)]), with_z(False)),
    Odd("subnormal numbers", column(np.arange(ROWS) * 5e-324), "^X: the values in 'z' differ by less than 1e-70.*resc"),
    Odd("minus zero", column(np.full(ROWS, -0.0), np.zeros(ROWS)), nothing_in("z")),
    Odd("a constant", column(np.full(ROWS, 7)), nothing_in("z")),
    Odd("a huge constant", column(np.full(ROWS, 1e60)), nothing_in("z")),
    Odd("a constant of each sample", column(np.zeros(ROWS), np.ones(ROWS)), with_z(True)),
    Odd("constant but for one row", column(np.r_[1, np.zeros(29)]), with_z(False)),
    Odd("a constant response but for one row", lambda: relate(X, np.r_[1, np.zeros(29)], random_state=0), sound),
    Odd("nothing but constants", pair(np.ones((9, 2)), np.ones((9, 2)), k=1), finds()),
    Odd("repeated columns", pair(np.c_[X, X], np.c_[Y, Y], k=2), sound),
    Odd("repeated rows", pair(np.repeat(X, 3, axis=0), np.repeat(Y, 3, axis=0)), sound),
    Odd("two values", column(np.arange(ROWS) % 2), with_z(False)),
    Odd("heavy ties", column(np.r_[np.zeros(28), 1, 2]), with_z(False)),
    Odd("Cauchy tails", column(np.tan(np.linspace(-1.57, 1.57, ROWS))), with_z(False)),
    Odd("strings", column(WORDS), with_z(False)),
    Odd("strings that differ", column(WORDS, ["q"] * ROWS), with_z(True)),
    Odd("strings of the sample", column(["q"] * ROWS, ["r"] * ROWS), with_z(True)),
    Odd("one string throughout", column(["q"] * ROWS), nothing_in("z")),
    Odd("a different string in each row", column([f"s{i}" for i in range(ROWS)]), with_z(False)),
    Odd("empty strings are a level", column(np.where(np.arange(ROWS) % 2, "", "v")), with_z(False)),
    Odd("the string nan is a level", column(np.where(np.arange(ROWS) % 2, "nan", "v")), with_z(False)),
    Odd(
        "strings of digits", column([str(i % 3) for i in range(ROWS)]), "^X: 1 column needs.*'z' holds numbers as text"
    ),
    Odd("strings of digits, told", column([str(i % 3) for i in range(ROWS)], kinds={"z": "number"}), with_z(False)),
    Odd("strings of two digits", column([str(i % 2) for i in range(ROWS)]), with_z(False)),
    Odd("money", column([f"${i},000.50" for i in range(ROWS)]), r"'z' holds numbers written as '\$0,000.50'.*'number'"),
    Odd(
        "money, told",
        column([f"${i},000.50" for i in range(1, 31)], [f"${i + 9},000" for i in range(1, 31)], kinds={"z": "number"}),
        with_z(True),
    ),
    Odd("numbers as categories", column([1, 2, 3] * 10, [3, 1, 2] * 10, kinds={"z": "category"}), with_z(False)),
    Odd("kinds of no column", column([1] * ROWS, kinds={"zz": "number"}), "^kinds: X has no column 'zz'; did you mean"),
    Odd("kinds of no kind", column([1] * ROWS, kinds={"z": "numeric"}), "^kinds: one of 'number', 'category', 'drop'"),
    Odd("kinds that are a list", column([1] * ROWS, kinds=["z"]), "^kinds: a mapping.*got list"),
    Odd("kinds that drop all", pair(XF, YF, kinds={"*": "drop"}), "^X: no column is left; choose fewer to drop"),
    Odd("words as numbers", column(WORDS, kinds={"z": "number"}), "^kinds: column 'z' cannot be read as numbers"),
    Odd(
        "strings against numbers",
        column([str(i) for i in range(ROWS)], range(ROWS)),
        "^X: 1 column needs a decision: 'z' holds numbers as text",
    ),
    Odd(
        "numbers against strings of numbers",
        column(range(ROWS), [str(i) for i in range(ROWS)]),
        "^Y: 1 column needs a decision: 'z' holds numbers as text",
    ),
    Odd(
        "dates against numbers",
        column(pd.date_range("2020", periods=ROWS), range(ROWS)),
        "^Y: column 'z' must be of the same kind as in X, but it holds dates in X and numbers in Y; convert",
    ),
    Odd(
        "dates against their strings, compared for equality",
        column(_DAYS, _DAYS.strftime("%Y-%m-%d"), kinds={"z": "category"}),
        with_z(False),
    ),
    Odd(
        "dates as categories have the names of dates",
        column(_DAYS, _DAYS[:1].repeat(ROWS), kinds={"z": "category"}),
        lambda result: is_("more '2020-01-01' in Y: 100% v 50%")(result["z"].description),
    ),
    Odd("numbers and strings mixed", column(["u", *range(29)]), "^X: 1 column.*'z' holds numbers.* text such as 'u'"),
    Odd("NumPy strings", pair(np.array([["u"], ["v"]] * 9), np.array([["u"], ["v"]] * 9)), finds()),
    Odd(
        "strings that are no Unicode",
        pair(np.full((2, 4), 0x20202020, np.uint32).view("U2"), Y[:2, :2]),
        "^X: column 'x0' holds text that is no Unicode; write its",
    ),
    Odd("bytes strings", pair(np.array([[b"u"], [b"\xff"]] * 9), np.array([[b"u"], [b"\xff"]] * 9)), finds()),
    Odd("Python bytes", column([b"u"] * ROWS), "^X: 1 column.*'z' holds values of type bytes.*'drop'"),
    Odd("categories with unused levels", column(pd.Categorical(_HALF, ["u", "v", "unused", "never"])), with_z(False)),
    Odd("only unused levels beside one", column(pd.Categorical(["u"] * ROWS, ["u", "v"])), nothing_in("z")),
    Odd("other levels in Y", column(pd.Categorical(_HALF), pd.Categorical(["w"] * ROWS)), with_z(True)),
    Odd(
        "levels in another order",
        column(pd.Categorical(_HALF, ["u", "v"]), pd.Categorical(_HALF, ["v", "u"])),
        with_z(False),
    ),
    Odd("ordered categories", column(pd.Categorical(_HALF, ["v", "u"], ordered=True)), with_z(False)),
    Odd("categories of numbers", column(pd.Categorical(np.arange(ROWS) % 3)), with_z(False)),
    Odd("categories against their strings", column(pd.Categorical(_HALF), _HALF), with_z(False)),
    Odd(
        "a gap in categories",
        column(pd.Categorical([None, *_HALF[1:]]), missing="error"),
        "^X: 1 of 30 rows have missing.*'z' \\(1\\)",
    ),
    Odd("nullable truth values", column(pd.array(np.arange(ROWS) % 2 == 0, dtype="boolean")), with_z(False)),
    Odd(
        "nullable truth with a gap",
        column(pd.array([None] + [True] * 29, dtype="boolean"), missing="error"),
        "^X: 1 of 30 rows have miss",
    ),
    Odd("dates", column([datetime.date(2020, 1, 1)] * ROWS), nothing_in("z")),
    Odd(
        "timestamps", column(pd.date_range("2020", periods=ROWS), pd.date_range("2020-02", periods=ROWS)), with_z(True)
    ),
    Odd("date strings", column(["2020-01-01", "2020-01-02"] * 15, ["2020-02-01", "2020-02-02"] * 15), with_z(True)),
    Odd(
        "dates and a word", column(["2020-01-01", "soon", "2020-01-02"] * 10), "'z' holds dates, but also text such as"
    ),
    Odd(
        "local dates", column(["31/12/2020", "30/12/2020"] * 15), "'z' holds dates written as '30/12/2020'.*2020-12-31"
    ),
    Odd(
        "timestamps with zones",
        column(pd.date_range("2020", periods=ROWS, tz="Asia/Tokyo")),
        with_z(False),
    ),
    Odd(
        "stamps of different zones",
        column([pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2020", tz="Asia/Tokyo")] * 15),
        with_z(False),
    ),
    Odd(
        "durations",
        column(pd.to_timedelta(np.arange(ROWS), unit="D")),
        with_z(False),
    ),
    Odd(
        "durations as pandas writes them",
        column(
            pd.Series(pd.to_timedelta(np.arange(ROWS) % 13 - 1.25, unit="D")).astype(str),
            pd.to_timedelta(np.arange(ROWS) % 13 + 30.0, unit="D"),
        ),
        with_z(True),
    ),
    Odd(
        "truth values against text",
        column([True, False] * 15, WORDS),
        "holds truth values in X and cat.*convert.*or compare.*kinds={'z': 'category'}",
    ),
    Odd("times of day", column([datetime.time(1)] * ROWS, [datetime.time(2)] * ROWS), with_z(True)),
    Odd("NumPy dates", column(np.array(["2020", "2021"] * 15, "M8[D]")), with_z(False)),
    Odd(
        "periods",
        column(pd.period_range("2020", periods=ROWS)),
        "^X: 1 column.*'z' holds values of type Period.*'drop'",
    ),
    Odd("intervals", column(pd.interval_range(0, 30)), "^X: 1 column.*'z' holds values of type Interval.*'drop'"),
    Odd("complex numbers", column(np.arange(ROWS) * 1j), "^X: 1 column.*'z' holds values of type complex128.*'drop'"),
    Odd("complex numbers, dropped", column(np.arange(ROWS) * 1j, kinds={"z": "drop"}), same),
    Odd(
        "lists in cells",
        column([[1, 2]] * ROWS),
        "^X: 1 column.*'z' holds values of type list, which cannot be tested; convert it to .*, or leave it out as with.*'drop'",
    ),
    Odd("dictionaries in cells", column([{"q": 1}] * ROWS), "^X: 1 column.*'z' holds values of type dict.*'drop'"),
    Odd(
        "polars lists",
        pair(pl.DataFrame({"l": [[1], [2]]}), pl.DataFrame({"l": [[1], [2]]})),
        "^X: 1 column.*'l' holds values of type List.*'drop'",
    ),
    Odd(
        "polars binary",
        pair(pl.DataFrame({"l": [b"u", b"v"]}), pl.DataFrame({"l": [b"u", b"v"]})),
        "^X: 1 column.*'l' holds values of type Binary.*'drop'",
    ),
    Odd(
        "Arrow decimals",
        twice(
            lambda v: pa.table(
                {n: pa.array([Decimal(int(c)) for c in v[:, i]], pa.decimal128(9, 2)) for i, n in enumerate(NAMES)}
            )
        ),
        same,
    ),
    Odd(
        "Arrow dictionaries with gaps",
        pair(
            pa.table({"z": pa.array(["u", None, "v"]).dictionary_encode()}),
            pa.table({"z": ["u", "v"]}),
            missing="error",
        ),
        "^X: 1 of 3 rows have missing",
    ),
    Odd(
        "Arrow nulls",
        pair(pa.table({"z": pa.nulls(5)}), pa.table({"z": pa.nulls(5)}), missing="error"),
        "^X: 5 of 5 rows have missing",
    ),
    Odd(
        "objects of a class of one's own",
        column([object()] * ROWS),
        "^X: 1 column.*'z' holds values of type object.*'drop'",
    ),
]

# Arguments ------------------------------------------------------------------------------------------------------------


def given(**options: Any) -> Callable[[], Result]:
    return lambda: compare(XF, YF, **({"random_state": 0} | options))


def _chosen(result: Result) -> int:
    sound(result)
    return len(result.selected)


def keeps(count: int) -> Check:
    return lambda result: is_(count)(_chosen(result))


def region(mean: Any = (2.0, 1.0), **options: Any) -> Callable[[], Any]:
    defaults = {
        "cov": np.eye(2),
        "in_hypothesis": lambda y: y[:, 0] <= 0,
        "in_selection": lambda y: y[:, 0] > y[:, 1],
        "replicates": 1000,
        "random_state": 0,
    }
    return lambda: selective_bootstrap(mean, **defaults | options)


ARGUMENTS = [
    Odd("k = 0", given(k=0), "^k: needs a whole number of at least 1, a fraction.*got 0"),
    Odd("k = -1", given(k=-1), "^k: needs a whole number of at least 1.*got -1"),
    Odd("k = 1.5", given(k=1.5), "^k: needs a whole number of at least 1.*got 1.5"),
    Odd("k = True", given(k=True), "^k: needs a whole number of at least 1.*got True"),
    Odd("k is text", given(k="ten"), "^k: needs a whole number of at least 1.*got 'ten'"),
    Odd("k is NaN", given(k=np.nan), "^k: needs a whole number of at least 1.*got nan"),
    Odd("k is infinite", given(k=np.inf), "^k: needs a whole number of at least 1.*got inf"),
    Odd("k beyond the features", given(k=4), "^k: at most the number of features, 3.*got 4; use k=None"),
    Odd("k as a NumPy integer", given(k=np.int64(2)), keeps(2)),
    Odd("k as a fraction", given(k=0.34), keeps(1)),
    Odd("k as a tiny fraction", given(k=1e-9), keeps(1)),
    Odd("k in a list", given(k=[2]), "^k: needs a whole number of at least 1.*got \\[2\\]"),
    Odd("k as a NumPy array", given(k=np.array([1, 2])), "^k: needs a whole number of at least 1"),
    Odd("threshold and k", given(k=2, threshold=1.0), "^threshold: .*leave out k"),
    Odd("threshold is NaN", given(threshold=np.nan, k=None), "^threshold: needs a number of standard deviations.*usual"),
    Odd("threshold is text", given(threshold="high"), "^threshold: needs a number of standard deviations.*usual"),
    Odd("threshold that nothing reaches", given(threshold=1e9), keeps(0)),
    Odd("threshold that all reach", given(threshold=-1e9), keeps(3)),
    Odd("alpha = 0", given(alpha=0), "^alpha: needs a number between 0 and 1, got 0; 0.05 is usual"),
    Odd("alpha = 5", given(alpha=5), "^alpha: needs a number between 0 and 1, got 5; 0.05 is usual"),
    Odd("alpha is NaN", given(alpha=np.nan), "^alpha: needs a number between 0 and 1, got nan"),
    Odd("alpha is text", given(alpha="0.05"), "^alpha: needs a number between 0 and 1, got '0.05'"),
    Odd("alpha is None", given(alpha=None), "^alpha: needs a number between 0 and 1, got None"),
    Odd("unknown estimator", given(estimator="complet"), "^estimator: needs one of.*did you mean 'complete'"),
    Odd("estimator is a class", given(estimator=dict), "^estimator: needs one of"),
    Odd("estimator in a list", given(estimator=["complete"]), "^estimator: needs one of.*did you mean 'complete'"),
    Odd("unknown test", given(test="bayes"), "^test: needs one of 'naive'.*'exact'|^test: needs one of .*got 'bayes'"),
    Odd("unknown kernel", given(kernel="gausian"), "^kernel: .*gaussian"),
    Odd("kernel is a number", given(kernel=3), "^kernel: "),
    Odd("kernel that gives a wrong shape", given(kernel=lambda a, b: np.ones((2, 2))), "^kernel: .*shape"),
    Odd("kernel that gives NaN", given(kernel=lambda a, b: np.full(len(a), np.nan)), "^kernel: .*finite"),
    Odd("kernel that gives text", given(kernel=lambda a, b: "near"), "^kernel: "),
    Odd("bandwidth = 0", given(bandwidth=0), "^bandwidth: .*positive"),
    Odd("bandwidth < 0", given(bandwidth=-1.0), "^bandwidth: .*positive"),
    Odd("bandwidth is NaN", given(bandwidth=np.nan), "^bandwidth: .*positive"),
    Odd("bandwidth is infinite", given(bandwidth=np.inf), "^bandwidth: .*positive"),
    Odd("unknown bandwidth", given(bandwidth="wide"), "^bandwidth: .*'median'"),
    Odd("bandwidths for other features", given(bandwidth=[1.0, 2.0]), "^bandwidth: .*3"),
    Odd("a bandwidth where every feature has missing values", pair(_with_gaps(X), _with_gaps(Y), bandwidth=3.0), finds("x1")),
    Odd("a response without values", lambda: relate(X, np.full(ROWS, np.nan)), "^y: at least 2 rows need a response, but 0 of 30 have one; choose another response"),
    Odd("equality of a response without ties", lambda: relate(X, np.arange(ROWS), kernel="delta"), _no_evidence("'delta' compares responses")),
    Odd("equality of a response without ties in strata", lambda: relate(X, np.arange(ROWS), kernel="delta", strata=WORDS), _no_evidence("'delta' compares responses")),
    Odd("a misspelt bandwidth", given(bandwidth="medain"), "^bandwidth: needs one of 'auto', 'adaptive'.*got 'medain'; did you mean 'median'"),
    Odd("a bandwidth of a kernel without one", given(kernel="linear", bandwidth=2.0), "^bandwidth: kernel='linear' has none, got 2.0; leave it out"),
    Odd("a bandwidth of a function", given(kernel=_product, bandwidth=2.0), "^bandwidth: kernel=.*_product.* has none, got 2.0; leave it out"),
    Odd("a tiny bandwidth", given(bandwidth=1e-300), sound),
    Odd("a huge bandwidth", given(bandwidth=1e300), sound),
    Odd("adaptive where it is not", given(bandwidth="adaptive", estimator="linear"), "^bandwidth: 'adaptive' needs.*'median'"),
    Odd("unknown correction", given(correction="bonferroni"), "^correction: needs None, 'bh', 'by', 'bky' or 'holm', got"),
    Odd("correction in a list", given(correction=["bh"]), "^correction: needs None, 'bh', 'by', 'bky' or 'holm', got"),
    Odd("unknown way with gaps", given(missing="ignore"), "^missing: needs 'column', 'value', 'drop' or 'error', got.*choose"),
    Odd("missing in a list", given(missing=["drop"]), "^missing: needs 'column', 'value', 'drop' or 'error', got.*choose"),
    Odd("negative seed", given(random_state=-1), "^random_state: needs a non-negative whole number.*got -1"),
    Odd("seed is text", given(random_state="seed"), "^random_state: needs a non-negative whole number.*got 'seed'"),
    Odd("seed is a fraction", given(random_state=1.5), "^random_state: needs a non-negative whole number.*got 1.5"),
    Odd("seed beyond 64 bits", given(random_state=2**100), same),
    Odd("seed of NumPy", given(random_state=np.uint8(3)), same),
    Odd("an old generator as seed", given(random_state=np.random.RandomState(0)), same),
    Odd("a generator as seed", given(random_state=np.random.default_rng(0)), same),
    Odd("a test for the estimator", given(estimator=Multiscale()), "^estimator: needs one of"),
    Odd("block_size = 1", given(estimator=Block(block_size=1)), "^block_size: "),
    Odd("block_size beyond the rows", given(estimator=Block(block_size=1000)), "^block_size: "),
    Odd("block_size is text", given(estimator=Block(block_size="wide")), "^block_size: "),
    Odd("r = 0", given(estimator=Incomplete(r=0)), "^r: "),
    Odd("r < 0", given(estimator=Incomplete(r=-1.0)), "^r: "),
    Odd("r is NaN", given(estimator=Incomplete(r=np.nan)), "^r: "),
    Odd("r is text", given(estimator=Incomplete(r="many")), "^r: "),
    Odd("replicates = 0", given(test=Multiscale(replicates=0)), "^replicates: needs a positive whole number.*10000"),
    Odd("replicates is text", given(test=Multiscale(replicates="all")), "^replicates: needs a positive whole number"),
    Odd("two scales", given(test=Multiscale(scales=[1, 2])), "^scales: needs at least three different positive"),
    Odd("scales are text", given(test=Multiscale(scales="log")), "^scales: needs at least three different positive"),
    Odd("unknown model", given(test=Multiscale(model="cubic")), "^model: needs.*got 'cubic'"),
    Odd("scores that are NaN", lambda: topk_pvalues(np.array([1.0, np.nan]), np.eye(2), 1), "^estimate: .*finite scores, but 1 of the 2"),
    Odd("scores that are text", lambda: topk_pvalues(["a"], np.eye(1), 1), "^estimate: .*finite scores"),  # type: ignore[arg-type]
    Odd("no scores", lambda: topk_pvalues(np.array([]), np.eye(0), 1), r"^estimate: needs a 1-D.*shape \(0,\)"),
    Odd("covariance of another size", lambda: topk_pvalues(np.ones(2), np.eye(3), 1), "^cov: needs finite values of shape"),
    Odd("asymmetric covariance", lambda: topk_pvalues(np.ones(2), np.array([[1, 1], [0, 1]]), 1), "^cov: needs a symm.*pass"),
    Odd("covariance with negative eigenvalue", lambda: topk_pvalues(np.ones(2), np.array([[1, 2], [2, 1]]), 1), "^cov: needs a positive semi"),
    Odd("covariance that is NaN in two cells", lambda: topk_pvalues(np.ones(2), np.array([[1, np.nan], [np.nan, 1]]), 1), r"^cov: needs finite values of shape .*got \(2, 2\), 2 of them not finite"),
    Odd("a negative variance", lambda: topk_pvalues(np.ones(2), np.array([1.0, -1.0]), 1), "^cov: needs a positive semi-definite matrix or variances, got a negative var"),
    Odd("zero covariance", lambda: topk_pvalues(np.ones(2), np.zeros((2, 2)), 1).pvalues, lambda p: is_(True)(bool(0 < p[0] <= 1))),
    Odd("covariance of 1e300", lambda: topk_pvalues(np.ones(2), np.eye(2) * 1e300, 1).pvalues, lambda p: is_(True)(bool(0 < p[0] <= 1))),
    Odd("covariance of complex numbers", lambda: topk_pvalues(np.ones(2), np.eye(2) * 1j, 1), "^cov: needs finite values of shape"),
    Odd("a vector that is NaN", region([np.nan, 1.0]), "^mean: needs a 1-D array of finite scores"),
    Odd("a covariance that is NaN", region(cov=np.full((2, 2), np.nan)), "^cov: needs finite values of shape"),
    Odd("a covariance of another size", region(cov=np.eye(3)), r"^cov: needs .*\(2, 2\).*got \(3, 3\)"),
    Odd("a negative covariance", region(cov=-np.eye(2)), "^cov: needs a positive semi-definite"),
    Odd("an asymmetric covariance", region(cov=np.array([[1.0, 0.5], [0.0, 1.0]])), "^cov: needs a symmetric"),
    Odd("variances of a vector", region(cov=np.ones(2)), lambda found: is_(region()().pvalue)(found.pvalue)),
    Odd("no replicates of a vector", region(replicates=0), "^replicates: needs a positive whole number.*10000"),
    Odd("an unknown law of a vector", region(model="cubic"), "^model: needs.*got 'cubic'"),
    Odd("two scales of a vector", region(scales=(1.0, 2.0)), "^scales: needs at least three different"),
    Odd("a seed of a vector that is text", region(random_state="seed"), "^random_state: .*got 'seed'"),
    Odd("a region of one boolean", region(in_hypothesis=lambda y: True), r"^in_hypothesis: must return one True or False for each.*bool of shape \(\)"),
    Odd("a region of numbers", region(in_hypothesis=lambda y: y[:, 0]), "^in_hypothesis: must return one True or False.*float64"),
    Odd("a region of each coordinate", region(in_selection=lambda y: y > 0), r"^in_selection: must return one True or False.*of shape \(1, 2\)"),
    Odd("a region of zeros and ones", region(in_hypothesis=lambda y: 1.0 * (y[:, 0] <= 0)), lambda found: is_(region()().pvalue)(found.pvalue)),
    Odd("three classes for two samples", lambda: SelectMMD().fit(X, np.arange(ROWS) % 3).n_features_in_, is_(3)),
    Odd("one class for two samples", lambda: SelectMMD().fit(X, np.zeros(ROWS)), "^y: .*two|^Y: .*"),
]  # fmt: skip

PYTHON = [*CONTAINERS, *SHAPES, *NAMED, *CELLS, *ARGUMENTS]

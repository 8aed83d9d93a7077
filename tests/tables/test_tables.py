"""Frames of mixed columns: their kinds, their codes, and back."""

from __future__ import annotations

import json
import math
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, load, log_joint
from dpsearch.errors import DataError, ModelFileError, ParameterError, UnseenValuesWarning
from dpsearch.tables import Column, Schema, replace_columns

COLUMNS = {
    "height": [1.5, None, 2.25, -1.0],
    "visits": [3, 0, None, 7],
    "change": [3, -2, None, 7],
    "smoker": [True, None, False, True],
    "city": ["Rome", None, "Oslo", "Rome"],
    "size": ["M", "S", None, "M"],
}
KINDS = ["real", "count", "real", "binary", "category", "category"]
CODES = [
    [1.5, 3.0, 3.0, 1.0, 1.0, 1.0],
    [math.nan, 0.0, -2.0, math.nan, math.nan, 0.0],
    [2.25, math.nan, math.nan, 0.0, 0.0, math.nan],
    [-1.0, 7.0, 7.0, 1.0, 1.0, 1.0],
]


def pandas_frame():
    frame = pd.DataFrame(COLUMNS)  # integers with gaps become floats
    return frame.assign(size=pd.Categorical(COLUMNS["size"], categories=["S", "M", "L"]))


def nullable_frame():
    return pandas_frame().convert_dtypes().astype({"size": pandas_frame()["size"].dtype})


def polars_frame():
    sizes = pl.Series(COLUMNS["size"], dtype=pl.Enum(["S", "M", "L"]))
    return pl.DataFrame(COLUMNS).with_columns(size=sizes)


FRAMES = {"pandas": pandas_frame, "nullable": nullable_frame, "polars": polars_frame}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_kinds_codes_and_back(make):
    frame = make()
    schema = Schema.of(frame)
    assert [column.kind for column in schema.columns] == KINDS
    assert schema.columns[4].levels == ("Oslo", "Rome")
    assert schema.columns[5].levels == ("S", "M", "L")  # the type's own, in its order
    assert schema.groups() == {"real": [0, 2], "count": [1], "binary": [3], "category": [4, 5]}
    matrix = schema.encode(frame)
    np.testing.assert_array_equal(matrix, CODES)
    back = schema.decode(matrix)
    assert type(back) is type(frame)
    assert list(back.columns) == list(frame.columns)
    np.testing.assert_array_equal(schema.encode(back), matrix)
    # In another order of columns, from another library, and through JSON.
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    for other in FRAMES.values():
        np.testing.assert_array_equal(again.encode(other()[list(frame.columns)[::-1]]), matrix)


def test_complete_columns_come_back_as_they_were():
    frame = pd.DataFrame({"n": [1, 2], "x": [1.0, 2.0], "b": [True, False], "t": ["u", "v"]})
    schema = Schema.of(frame)
    pd.testing.assert_frame_equal(schema.decode(schema.encode(frame)), frame)
    other = pl.from_pandas(frame)
    schema = Schema.of(other)
    assert schema.decode(schema.encode(other)).equals(other)


def test_kinds_can_be_specified():
    frame = pd.DataFrame({"zip": [10, 20, 20, 10], "x": [0.0, 1.0, 0.0, 1.0]})
    schema = Schema.of(frame, {"zip": "category", "x": "binary"})
    assert schema.columns[0].levels == (10, 20)
    np.testing.assert_array_equal(schema.encode(frame), [[0, 0], [1, 1], [1, 0], [0, 1]])
    assert schema.decode(np.array([[1.0, 0.0]]))["zip"].tolist() == [20]
    # With a gap the integers are floats, and still the same levels.
    later = pd.DataFrame({"zip": [20, None], "x": [0.0, None]})
    np.testing.assert_array_equal(schema.encode(later), [[1, 0], [math.nan, math.nan]])


def test_whole_floats():
    whole = [1.0, 2.0, 4.0]
    assert Schema.of(pd.DataFrame({"x": whole})).columns[0].kind == "real"
    assert Schema.of(pd.DataFrame({"x": [*whole, None]})).columns[0].kind == "count"
    assert Schema.of(pd.DataFrame({"x": [*whole, 0.5, None]})).columns[0].kind == "real"
    assert Schema.of(pl.DataFrame({"x": [*whole, None]})).columns[0].kind == "count"


@pytest.mark.parametrize(
    ("columns", "kinds", "said"),
    [
        ({"l": [[1], [2]]}, None, "no column is left to cluster by .'l': it holds lists"),
        ({"t": ["a", "b"]}, {"t": "date"}, "'t' of X does not hold dates"),
        ({"t": ["a", "b", "c", "a"]}, {"t": "binary"}, "'t' of X is not binary: it has 3 levels"),
        ({"t": ["a", "b"]}, {"t": "real"}, "row 0, column 't' is 'a', not a number"),
        ({"x": [1.0, -1.0]}, {"x": "count"}, "row 1, column 'x' is -1, not a count"),
        ({"x": [1.0, 0.5]}, {"x": "count"}, "row 1, column 'x' is 0.5, not a count"),
        ({"t": pd.Series([None, None], dtype="category")}, None, "left .*'t': it has no values"),
    ],
)
def test_columns_that_cannot_be_used(columns, kinds, said):
    with pytest.raises(DataError, match=said):
        Schema.of(pd.DataFrame(columns), kinds)
    with pytest.raises(DataError, match=said):
        DPMixture(kinds=kinds or {}).fit(pd.DataFrame(columns))


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"y": "real"}, "'y', which the table does not have"),
        ({"x": "number"}, r"kinds\['x'\] must be one of real, count, binary, category"),
        (["x"], "kinds must map"),
    ],
)
def test_bad_kinds(kinds, said):
    with pytest.raises(ParameterError, match=said):
        DPMixture(kinds=kinds).fit(pd.DataFrame({"x": [1.0, 2.0]}))


def test_new_data_must_fit_the_schema():
    schema = Schema.of(pandas_frame())
    frame = pandas_frame().assign(city=["Rome", "Bonn", "Oslo", "Rome"])
    with pytest.raises(
        DataError, match="row 1, column 'city' is 'Bonn', which is not a level.*'Oslo'"
    ):
        schema.encode(frame, "error")
    with pytest.warns(UnseenValuesWarning, match="'city' has 1 value that the fit .* 'Bonn'"):
        assert np.isnan(schema.encode(frame)[1, 4])
    with pytest.raises(DataError, match="X has no column 'city'"):
        schema.encode(frame.drop(columns="city"))
    with pytest.raises(DataError, match="X has a column 'more'"):
        schema.encode(pandas_frame().assign(more=1))
    with pytest.raises(DataError, match="must be a pandas or polars frame"):
        schema.encode(np.zeros((2, 6)))
    with pytest.raises(DataError, match=r"a column 'height \(2\)' that"):
        schema.encode(pd.concat([frame, frame], axis=1))


def test_names_are_looked_up_not_searched_for():
    """The number of name comparisons per column does not grow with the columns."""

    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

    class Label:
        def __init__(self, j):
            self.j = j

        def __str__(self):
            return Name(f"c{self.j}")

    width = 300
    frame = types.SimpleNamespace(columns=[Label(j) for j in range(width)])
    columns = tuple(Column(Name(f"c{j}"), "real", "float") for j in reversed(range(width)))
    assert Schema("pandas", columns).places(frame) == {j: width - 1 - j for j in range(width)}
    assert 0 < Name.compared <= 10 * width


@pytest.mark.parametrize(
    "change",
    [
        {"library": "os"},
        {"columns": []},
        {"columns": [{"name": "a", "kind": "real"}]},
        {"columns": [{"name": "a", "kind": "real", "source": "float", "levels": ["x"]}]},
        {"columns": [{"name": "a", "kind": "odd", "source": "float", "levels": None}]},
        {"columns": [{"name": "a", "kind": "category", "source": "text", "levels": ["x", "x"]}]},
        {"columns": [{"name": "a", "kind": "category", "source": "text", "levels": [{}]}]},
        {"columns": [{"name": "a", "kind": "binary", "source": "text", "levels": [1, 2, 3]}]},
        {"columns": [{"name": "a", "kind": "real", "source": "float", "levels": None}] * 2},
    ],
)
def test_bad_descriptions_of_schemas(change):
    with pytest.raises(ParameterError):
        Schema.from_dict(Schema.of(pandas_frame()).to_dict() | change)


# -- the estimator -----------------------------------------------------------------------------


def people(n=240, seed=0):
    """Return three kinds of people, distinguished by columns of every kind, a tenth missing."""
    rng = np.random.default_rng(seed)
    who = rng.integers(3, size=n)
    cities = np.array(["Bonn", "Oslo", "Rome"], dtype=object)
    frame = pd.DataFrame(
        {
            "height": np.array([-6.0, 0.0, 6.0])[who] + rng.normal(size=n),
            "visits": rng.poisson(np.array([1.0, 8.0, 25.0])[who]),
            "smoker": rng.random(n) < np.array([0.1, 0.9, 0.5])[who],
            "city": cities[np.where(rng.random(n) < 0.8, who, rng.integers(3, size=n))],
        }
    )
    holes = frame.apply(lambda column: column.mask(rng.random(n) < 0.1))
    return frame, holes, who


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_mixed_table(library, tmp_path):
    full, holes, who = people()
    frame = holes if library == "pandas" else pl.from_pandas(holes.convert_dtypes())
    model = DPMixture(random_state=0).fit(frame)
    assert adjusted_rand_score(who, model.labels_) > 0.95
    assert [family.family.name for family, _ in model.family_.parts] == [
        "diagonal_gaussian",
        "poisson",
        "bernoulli",
        "categorical",
    ]
    matrix = model.schema_.encode(frame)
    want = log_joint(matrix, model.component_labels_, model.family_, model.mixture_.prior)
    assert model.log_joint_ == pytest.approx(want)
    assert list(model.feature_names_in_) == list(full.columns)
    probabilities = model.predict_proba(frame)
    # New complete data, in another order of columns.
    assert adjusted_rand_score(who, model.predict(full[full.columns[::-1]])) > 0.95
    rows, labels = model.sample(30)
    assert type(rows) is type(frame)
    assert len(labels) == 30
    assert set(rows["city"]) <= {"Bonn", "Oslo", "Rome"}
    filled = model.impute(frame)
    assert type(filled) is type(frame)
    there = filled if library == "pandas" else filled.to_pandas()
    assert not there.isna().any().any()
    for name in full:
        seen = holes[name].notna().to_numpy()
        assert (there[name][seen] == full[name][seen]).all()
    lost = holes["city"].isna().to_numpy()
    assert (there["city"][lost] == full["city"][lost]).mean() > 0.6
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.schema_ == model.schema_
    np.testing.assert_allclose(again.predict_proba(frame), probabilities, rtol=1e-9)


def test_impute_keeps_frames_of_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 2)), columns=["a", "b"], index=range(5, 25))
    frame.iloc[3, 0] = np.nan
    X = frame.to_numpy()
    model = DPMixture("gaussian").fit(frame)
    filled = model.impute(frame)
    assert filled.index.equals(frame.index)
    assert filled["a"].iloc[3] == DPMixture("gaussian").fit(X).impute(X)[3, 0]
    assert filled["b"].equals(frame["b"])
    assert np.isnan(frame.iloc[3, 0])
    other = model.impute(pl.from_pandas(frame))
    assert other["a"].to_list() == filled["a"].to_list()


def _typed(library):
    """Return the people with gaps, with another type for every column, and in further types."""
    _, holes, _ = people(60)
    numbers = {"visits": "Int32", "height": "float64"}
    frame = holes.assign(
        smoker=holes["smoker"].astype("boolean"),
        town=holes["city"].astype(pd.CategoricalDtype(["Rome", "Oslo", "Bonn"], ordered=True)),
        plain=holes["city"].astype("category"),
        text=holes["city"].astype("string"),
        asked=holes["smoker"],
        light=holes["height"].astype("float32"),
    ).astype(numbers)
    if library == "polars":
        out = pl.from_pandas(frame.assign(asked=frame["smoker"]))
        enum = pl.col("text").cast(pl.Enum(["Rome", "Oslo", "Bonn"]))
        return out.with_columns(town=enum, plain=pl.col("text").cast(pl.Categorical))
    if library == "arrow":
        arrow = {"visits": "int64[pyarrow]", "smoker": "bool[pyarrow]", "light": "float[pyarrow]"}
        return frame.astype({**arrow, "text": pd.ArrowDtype(pa.string())})
    return frame


@pytest.mark.parametrize("library", ["pandas", "arrow", "polars"])
def test_impute_keeps_types(library):
    """Numeric types are kept too, except that integers become floats of the same kind."""
    frame = _typed(library)
    kinds = dict.fromkeys(frame.columns, "keep")  # also copies
    filled = DPMixture(random_state=0, refine=False, kinds=kinds).fit(frame).impute(frame)
    floats = {"pandas": "Float64", "arrow": "double[pyarrow]", "polars": "Float64"}
    before, after = (
        dict(zip(frame.columns, frame.dtypes, strict=True)),
        dict(zip(filled.columns, filled.dtypes, strict=True)),
    )
    assert str(after.pop("visits")) == floats[library]
    del before["visits"]
    assert after == before
    for name in frame.columns:
        old, new = frame[name].to_list(), filled[name].to_list()
        pairs = [(a, b) for a, b in zip(old, new, strict=True) if not pd.isna(a)]
        assert len(pairs) < len(old)
        assert all(a == b for a, b in pairs)
        assert not any(map(pd.isna, new))


@pytest.fixture(scope="module")
def of_people():
    """Fit sixty people without gaps."""
    full, _, _ = people(60)
    return DPMixture(random_state=0, refine=False).fit(full), full


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_impute_with_a_level_that_the_type_does_not_have(library, of_people):
    """The type of new rows may have fewer levels than the model."""
    model, full = of_people
    row = model.schema_.encode(full)[np.flatnonzero(full["city"] == "Rome")[:1]]
    rows = model.schema_.decode(np.repeat(row, 2, axis=0)).assign(city=["Oslo", None])
    if library == "pandas":
        rows["city"] = rows["city"].astype(pd.CategoricalDtype(["Oslo"], ordered=True))
    else:
        rows = pl.from_pandas(rows).with_columns(pl.col("city").cast(pl.Enum(["Oslo"])))
    assert model.impute(rows)["city"].to_list() == ["Oslo", "Rome"]


def test_impute_of_a_column_that_is_all_missing(of_people):
    model, full = of_people
    rows = full.head(2).assign(smoker=math.nan, city=pd.array([None, None], dtype="Int64"))
    filled = model.impute(rows)
    assert filled["smoker"].dtype == bool
    assert set(filled["city"]) <= {"Bonn", "Oslo", "Rome"}


def test_impute_keeps_integers_that_stay_whole():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int32")})
    for vector, dtype in (([1.0, 2.0, 3.0], "Int32"), ([1.0, 2.5, 3.0], "Float64")):
        out = replace_columns(frame, (), {0: np.array(vector)})["a"]
        assert out.dtype == dtype
        assert out.tolist() == vector


UNREAD = {
    "dict": (
        lambda frame: frame.to_dict("list"),
        "X is a dict, not a table: convert it with pandas.DataFrame",
    ),
    "arrow": (pa.Table.from_pandas, r"X is a pyarrow Table: convert it with to_pandas\(\)"),
}


@pytest.mark.parametrize("columns", [["height", "visits"], ["height", "city"]], ids=str)
def test_tables_that_are_not_read_yet(columns):
    frame = people(40)[0][columns]
    model = DPMixture(random_state=0, refine=False).fit(frame)
    calls = [DPMixture().fit, DPMixture(kinds={"height": "real"}).fit]
    for call in (*calls, model.predict, model.predict_proba, model.impute, model.explain):
        for make, said in UNREAD.values():
            with pytest.raises(DataError, match=said):
                call(make(frame))


@pytest.mark.slow
def test_the_order_of_columns_matters_in_frames_of_numbers_only():
    """This is what the document says."""
    frame = people(40)[0]
    numbers = frame[["height", "visits"]]
    model = DPMixture(random_state=0, refine=False).fit(numbers)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(numbers[["visits", "height"]])
    said = DPMixture(random_state=0, refine=False, kinds={"visits": "count"}).fit(numbers)
    np.testing.assert_array_equal(
        said.predict(numbers), said.predict(numbers[["visits", "height"]])
    )


def test_families_given_for_a_mixed_table():
    full, holes, _ = people(60)
    with pytest.raises(DataError, match="column 'city' of X holds categories, which the gaussian"):
        DPMixture("gaussian").fit(full)
    by_hand = families.Product(
        [
            (families.FullGaussian(scale=2.0), [0]),
            (families.Poisson(0.5, 0.1), [1]),
            (families.Bernoulli(), [2]),
            (families.Categorical(), [3]),
        ]
    )
    assert DPMixture(by_hand).fit(full).family_.parts[0][0].name == "full_gaussian"
    with pytest.raises(DataError, match="column 'height' is missing, but the full_gaussian"):
        DPMixture(by_hand).fit(holes)
    wrong = families.Product([(families.Poisson(), [0, 1, 2]), (families.Categorical(), [3])])
    with pytest.raises(DataError, match="column 'height' is"):
        DPMixture(wrong).fit(full)
    only = DPMixture().fit(full[["city"]])
    assert only.family_.name == "categorical"


def test_a_model_file_whose_schema_does_not_fit(tmp_path):
    from dpsearch._archive import read_archive, write_archive

    full, _, _ = people(40)
    path = tmp_path / "model.npz"
    kinds = {"height": "real", "visits": "count"}
    DPMixture(refine=False, kinds=kinds).fit(full).save(path)
    about, arrays = read_archive(path, "dpsearch-model", 1, "a dpsearch model")
    short = about | {"schema": about["schema"] | {"columns": about["schema"]["columns"][:2]}}
    odd = about | {"schema": {"library": "pandas", "columns": "all"}}
    without = {name: value for name, value in about.items() if name != "schema"}
    for broken in (short, odd, without):
        write_archive(path, broken, arrays)
        with pytest.raises(ModelFileError):
            load(path)


# -- products ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "at least one part"),
        ([(families.Gaussian(), [0]), (families.Poisson(), [0])], "column 0 is in two"),
        ([(families.Gaussian(), [0, 2])], "column 1 is in none"),
        ([(families.Gaussian(), [])], "has no columns"),
        ([(families.Gaussian(), [-1])], "must be integers ≥ 0"),
        ([("gaussian", [0])], "must be a family other than Product"),
        ([families.Gaussian()], "pairs of a family and its columns"),
        (
            [(families.Product([(families.Gaussian(), [0])]), [0])],
            "must be a family other than Product",
        ),
    ],
)
def test_parts_that_make_no_product(parts, said):
    with pytest.raises(ParameterError, match=said):
        families.Product(parts)


def test_products_name_the_column_at_fault():
    product = families.Product([(families.Poisson(), [1]), (families.Bernoulli(), [2, 0])])
    X = np.zeros((4, 3))
    X[2, 0] = 3.0
    with pytest.raises(DataError, match="zeros and ones, but X at row 2, column 0 is 3"):
        product.compile(X)
    with pytest.raises(DataError, match="X has 2 columns, but the parts of the product have 3"):
        product.compile(X[:, :2])


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "product"},
        {"name": "product", "parts": "all"},
        {"name": "product", "parts": [[{"name": "os.system"}, [0]]]},
        {"name": "product", "parts": [[{"name": "poisson"}, {"a": 1}]]},
        {"name": "product", "parts": [[{"name": "poisson"}, [0]]], "more": 1},
        {"name": "with_gaps", "family": {"name": "full_gaussian"}},
        {"name": "with_gaps", "family": {"name": "with_gaps", "family": {"name": "poisson"}}},
    ],
)
def test_bad_descriptions_of_families_of_families(spec):
    with pytest.raises(ParameterError):
        families.from_dict(spec)


def test_hyperparameters_of_parts_are_rescaled_by_name():
    product = families.Product([(families.Poisson(2.0), [0]), (families.Bernoulli(), [1])])
    scaled = product.rescaled({"0.shape": 3.0, "1.failures": 0.5})
    assert scaled.parts[0][0] == families.Poisson(6.0)
    assert scaled.parts[1][0] == families.Bernoulli(1.0, 0.5)
    assert product.hyperparameters()["0.shape"] == 2.0
    gapped = families.WithGaps(families.Poisson(2.0))
    assert gapped.rescaled({"shape": 2.0}) == families.WithGaps(families.Poisson(4.0))

"""The triage of columns: roles, numbers and dates in texts, and models that keep it."""

from __future__ import annotations

import contextlib
import json
import math
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpsearch import DPMixture, load, triage
from dpsearch.errors import DataError, ParameterError, UnseenValuesWarning
from dpsearch.tables import Schema, Triage, cells, triaged
from studies.tables.odd import COLUMNS, OBJECTS, odd_table

N = 150
ROLES = {
    "number": "number", "two groups": "number", "skewed": "skewed", "count": "count",
    "rating": "ordinal", "year": "number", "month": "angle", "wind dir": "angle",
    "kind": "category", "flag": "category", "answer": "category", "money": "skewed",
    "betrag": "number", "percent": "number", "weight": "number", "with gaps": "number",
    "mostly numbers": "number", "date": "date", "moment": "date", "american": "date",
    "stamp": "date", "row": "identifier", "customer_id": "identifier", "email": "identifier",
    "zip": "identifier", "review": "text", "constant": "constant", "nearly constant": "constant",
    "nothing": "constant", "infinite": "number", "huge": "number", "odd words": "category",
    "target": "target", "lists": "nested", "dictionaries": "nested", "mixed": "category",
    "categorical": "category", "ordered": "ordinal", "complex": "nested", "bytes": "nested",
}  # fmt: skip


def whole_table(n=N):
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: make(rng, n) for name, make in (COLUMNS | OBJECTS).items()})


def test_roles():
    found = triage(whole_table())
    assert {name: found[name].role for name in ROLES} == ROLES
    dropped = {"identifier", "text", "constant", "target", "nested", "copy"}
    for entry in found:
        assert (entry.treatment == "dropped") == (entry.role in dropped), entry
        assert entry.reason
    assert Triage.from_list(found.to_list()) == found


def test_answers_on_one_scale_are_taken_alike():
    rng = np.random.default_rng(0)
    answers = rng.integers(1, 6, (60, 60))  # of which half vary by more than their mean
    tops = np.clip(np.rint(rng.normal(5.0, 2.5, (200, 8))), 0, 10).astype(int)
    for table, role in [
        (answers, "ordinal"),
        (tops, "ordinal"),
        (rng.poisson(2, (200, 8)), "count"),
    ]:
        frame = pd.DataFrame(table, columns=[f"q{j}" for j in range(table.shape[1])])
        assert {entry.role for entry in triage(frame).entries} == {role}


def test_a_wide_table_shows_what_stands_out_and_names_the_rest():
    rng = np.random.default_rng(0)
    answers = {f"q{j:02}": rng.integers(11, 16, 60) for j in range(60)}
    odd = {"x": rng.normal(size=60), "country": "DE", "flag": rng.choice(["y", "n"], 60)}
    when = pd.date_range("2020-01-01", periods=60, freq="11D")
    frame = pd.DataFrame({"row": range(60)} | answers | odd | {"when": when})
    frame.loc[:5, "q07"] = 999
    found = triage(frame)
    assert found["q07"].changed
    assert not found["q08"].changed
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["column", "row", "q07", "country", "when"]
    assert lines[5].startswith("59 ordinal: q00, q01, ")
    assert lines[5].endswith(", …")
    assert len(lines[5]) < 120
    assert lines[6:8] == ["1 number: x", "1 category, read: flag"]
    assert lines[8] == "all columns: triage in run.json; .entries or .table(65) in Python"
    assert len(found.table(65).splitlines()) == 1 + 65
    # Up to 40 columns each has its line, even if none stands out.
    some = triage(frame[[f"q{j}" for j in range(10, 50)]])
    assert len(str(some).splitlines()) == 1 + 40
    more = triage(frame[[f"q{j}" for j in range(10, 51)]])
    assert str(more).splitlines()[0].startswith("41 ordinal:")
    # However many columns are dropped, none goes without a word.
    constant = pd.DataFrame({"x": frame["x"]} | {f"c{j}": 1 for j in range(101)})
    constant = str(triage(constant)).splitlines()
    assert len(constant) == 1 + 40 + 2 + 1
    assert any(line.startswith("61 constant, dropped: c40") for line in constant)


@pytest.mark.filterwarnings("ignore::dpsearch.errors.UnseenValuesWarning")  # of infinities
def test_both_libraries_agree():
    frame = whole_table().drop(columns=["mixed", *OBJECTS])
    same = pl.from_pandas(frame)
    found, other = triaged(frame), triaged(same)
    assert [entry[:3] for entry in found.triage] == [entry[:3] for entry in other.triage]
    np.testing.assert_array_equal(found.matrix, other.matrix)
    np.testing.assert_array_equal(found.schema.encode(same), found.matrix)


def test_copies_and_other_names_of_levels():
    rng = np.random.default_rng(0)
    k, x = rng.integers(3, size=60), rng.normal(size=60)
    frame = pd.DataFrame({
        "class": k + 1, "name": np.array(["first", "second", "third"])[k], "x": x, "x2": x,
        "y": rng.permutation(x), "id": rng.permutation(60), "rank": rng.permutation(60) * 2,
    })  # fmt: skip
    found = triage(frame)
    copies = [entry.name for entry in found if entry.role == "copy"]
    assert copies == ["name", "x2"]  # and not y: it is one to one with x, as all such columns are


def test_parts_of_dates_that_columns_have_already():
    dates = pd.date_range("2020-01-01", periods=90, freq="30D")
    frame = pd.DataFrame({"month": dates.month, "when": dates, "again": dates, "year": dates.year})
    found = triaged(frame)
    assert found.schema.names == ["month", "when (weekday)", "year"]
    said = "year, month, weekday; its year repeats 'year'; its month repeats 'month'"
    assert found.triage["when"].reason == said
    assert found.triage["again"].role == "copy"


def test_dates_of_one_event_count_once():
    rng = np.random.default_rng(0)
    begun = np.datetime64("2020-01-01") + rng.integers(0, 2000, 400).astype("timedelta64[D]")
    ended = begun + np.where(rng.random(400) < 0.03, 40, 0).astype("timedelta64[D]")
    other = rng.permutation(begun)
    rare = rng.choice(["a", "b"], 400, p=[0.03, 0.97])
    frame = pd.DataFrame(
        {"begun": begun, "ended": ended, "other": other, "x": rare, "y": rare[::-1]}
    )
    names = triaged(frame).schema.names
    assert [name for name in names if "ended" in name] == ["ended (year)"]
    assert {"other (month)", "other (weekday)", "x", "y"} <= set(names)
    # The columns of clear clusters agree as well, and are what a fit needs.
    group = rng.integers(3, size=400)
    noisy = [np.where(rng.random(400) < 0.02, rng.integers(3, size=400), group) for _ in range(4)]
    frame = pd.DataFrame({f"c{j}": np.array(list("abc"))[k] for j, k in enumerate(noisy)})
    assert triaged(frame).schema.names == ["c0", "c1", "c2", "c3"]
    # Some months of a year, most of them January: two that differ are not alike by chance.
    mostly = [pd.to_datetime(np.where(rng.random(400) < 0.04, "2020-05-01", "2020-01-01"))] * 2
    frame = pd.DataFrame({"a": mostly[0], "b": rng.permutation(mostly[1]), "z": other})
    assert {"a (month)", "b (month)"} <= set(triaged(frame).schema.names)


def test_a_column_of_the_table_comes_before_a_part_of_a_date():
    rng = np.random.default_rng(0)
    observed = rng.random(60) < 0.7
    when = pd.to_datetime(np.where(observed, "2020-01-01 00:00", "2021-06-02 18:00"))
    frame = pd.DataFrame({"x": rng.normal(size=60), "when": when, "observed": observed})
    found = triaged(frame)
    assert found.schema.names == ["x", "observed"]
    assert found.triage["when"].role == "copy"


def test_numbers_under_one_name():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "a"])
    model = DPMixture(refine=False).fit(frame)
    assert model.feature_names_in_.tolist() == ["a", "a (2)"]
    np.testing.assert_array_equal(model.predict(frame), model.labels_)


def test_at_most_fifty_levels():
    rng = np.random.default_rng(0)
    share = np.r_[np.full(30, 0.03), np.full(50, 0.002)]
    towns = rng.choice([f"t{i:02}" for i in range(80)], size=2000, p=share)
    frame = pd.DataFrame({"x": rng.normal(size=2000), "town": towns})
    found = triaged(frame)
    (column,) = [column for column in found.schema.columns if column.name == "town"]
    assert len(column.levels) == 50
    counts = frame["town"].value_counts()
    rare = ~frame["town"].isin(column.levels)
    assert counts[column.levels[0]] >= counts[frame["town"][rare]].max()
    codes = found.matrix[:, 1]
    assert set(codes[rare]) == {column.levels.index("other")}
    # A level that is new is "other" too.
    assert found.schema.encode(frame.head(1).assign(town="new"))[0, 1] == codes[rare][0]
    flat = pd.DataFrame({"x": frame["x"], "town": [f"t{i % 400}" for i in range(2000)]})
    assert triage(flat)["town"].treatment == "dropped"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$1,234.50", 1234.5), ("-$3", -3.0), ("($3.10)", -3.1), ("1 234", 1234.0), ("12%", 12.0),
        ("7.5 kg", 7.5), ("$1.2M", 1.2e6), ("3k", 3000.0), ("−4", -4.0), ("1e3", 1000.0),
        ("USD 5", 5.0), (".5", 0.5), ("007", math.nan), ("12:30", math.nan), ("1.2.3", math.nan),
        ("1,23", math.nan), ("A12", math.nan), ("5-10", math.nan), ("1e999", math.nan),
    ],
)  # fmt: skip
def test_numbers_in_texts(text, value):
    np.testing.assert_equal(cells.number_reader(cells.POINT)(text), value)


def test_the_form_of_numbers():
    def form(*texts):
        return cells.number_form(texts, np.ones(len(texts), int))

    assert form("1,5", "2,25") == form("1.234,5", "7") == form("1.234.567") == cells.COMMA
    assert form("1,234", "5,678") == form("1.5") == form("1,234,567") == cells.POINT
    assert form("5 kg", "7 lb") is form("a", "1") is form() is form("10.0.0.1", "10.0.0.2") is None
    assert form("unknown", "5", "none") == cells.POINT


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M",
     "%b %d %Y", "%d %B %Y", "%d-%b-%y", "%B %d, %Y", "%m/%d/%y", "%Y-%m"],
)  # fmt: skip
def test_dates_in_texts(form):
    rng = np.random.default_rng(0)
    dates = [datetime(2001 + int(k) % 20, 1 + int(k) % 12, 1 + int(k) % 28, int(k) % 24)
             for k in rng.integers(10**6, size=60)]  # fmt: skip
    texts = [date.strftime(form) for date in dates]
    found = triaged(pd.DataFrame({"x": rng.normal(size=60), "when": texts}))
    assert found.triage["when"].role == "date"
    parts = {column.part: values for column, values in zip(found.schema.columns, found.matrix.T)}
    np.testing.assert_array_equal(parts["year"], [date.year for date in dates])
    np.testing.assert_array_equal(parts["month"], [date.month - 1 for date in dates])
    if "%d" in form:
        np.testing.assert_array_equal(parts["weekday"], [date.weekday() for date in dates])
    if "%H" in form:
        np.testing.assert_array_equal(parts["hour"], [date.hour for date in dates])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpsearch.errors.UnseenValuesWarning")  # of infinities
def test_a_model_keeps_the_triage(tmp_path):
    frame = whole_table(80)
    model = DPMixture(refine=False).fit(frame)
    model.save(tmp_path / "m.npz")
    again = load(tmp_path / "m.npz")
    assert again.triage_ == model.triage_
    assert again.schema_ == model.schema_
    np.testing.assert_allclose(again.predict_proba(frame), model.predict_proba(frame))
    fewer = frame.drop(columns=["email", "review"])  # which are not clustered by
    np.testing.assert_array_equal(again.predict(fewer), model.predict(frame))
    drawn, _ = again.sample(20)
    assert list(drawn.columns) == list(model.feature_names_in_)
    again.predict(drawn)
    said = model.explain(frame)
    assert said.names == tuple(model.feature_names_in_)


def test_values_that_the_fit_did_not_see():
    frame = whole_table(80)[["two groups", "kind"]]
    model = DPMixture(refine=False).fit(frame)
    new = frame.head(5).assign(kind=["level 0", "new", "newer", None, "level 1"])
    gaps = new.assign(kind=["level 0", None, None, None, "level 1"])
    with pytest.warns(UnseenValuesWarning, match="column 'kind' has 2 values .* 'new'") as said:
        found = model.predict_proba(new)
    assert said[0].message.count == 2
    np.testing.assert_array_equal(found, model.predict_proba(gaps))
    model.set_params(handle_unknown="error")
    with pytest.raises(DataError, match="row 1, column 'kind' is 'new'"):
        model.predict(new)
    with pytest.raises(ParameterError, match="handle_unknown must be 'missing' or 'error'"):
        DPMixture(handle_unknown="guess").fit(frame)


def test_a_row_without_any_value_has_the_label_of_the_prior():
    frame = whole_table(80)[["two groups", "kind"]]
    nothing = pd.DataFrame({"two groups": [math.nan], "kind": [None]})
    model = DPMixture(refine=False).fit(pd.concat([frame, nothing], ignore_index=True))
    assert model.mixture_.sizes.sum() == 80
    assert model.labels_[-1] == model.predict(nothing)[0] == 0


def test_texts_that_are_codes_of_missing_values():
    frame = pd.DataFrame({"x": np.arange(40.0) ** 2, "state": ["a", "b", "b", "refused"] * 10})
    assert triage(frame, missing_codes=["refused"])["state"].reason == "2 levels; 10 missing"
    model = DPMixture(refine=False, missing_codes=["refused", 4]).fit(frame)
    matrix = model.checked(frame).matrix
    assert np.isnan(matrix).sum(axis=0).tolist() == [1, 10]


def _found(frame):
    """Return the triage of the columns; nothing if none of them has a value."""
    with contextlib.suppress(DataError):
        return triage(frame)
    return ()


@pytest.mark.filterwarnings("ignore::dpsearch.errors.UnseenValuesWarning")  # of infinities
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.slow)])
def test_fuzz(seeds):
    """Any columns give a result, or one error about a table without any usable column."""
    for seed in seeds:
        frame = odd_table(np.random.default_rng(seed), objects=True)
        if seed % 3 == 2:
            frame.columns = ["same"] * frame.shape[1]
        if not _found(frame):
            continue
        model = DPMixture(refine=False).fit(frame)
        assert len(model.triage_) == frame.shape[1]
        assert len(model.predict(frame)) == len(frame)


def test_codes_that_are_given_do_not_decide_what_a_column_is():
    rng = np.random.default_rng(0)
    answers = rng.integers(1, 6, (60, 2))
    answers[::7] = 99
    frame = pd.DataFrame(answers, columns=["price", "quality"])
    model = DPMixture(missing_codes=[99], refine=False).fit(frame)
    assert [entry.reason for entry in model.triage_] == ["1 to 5; 9 missing"] * 2
    same = model.predict_proba(frame.replace(99, np.nan))
    np.testing.assert_array_equal(model.predict_proba(frame), same)


def test_codes_that_are_recognised_do_not_decide_either():
    rng = np.random.default_rng(0)
    answers = rng.integers(1, 6, (60, 2))
    answers[::7] = 99
    found = triage(pd.DataFrame(answers, columns=["price", "quality"]))
    assert [entry.reason for entry in found] == ["1 to 5; 9 of 99, treated as missing"] * 2
    kept = triaged(pd.DataFrame(answers, columns=["price", "quality"]), codes=False).triage
    assert kept["price"].reason == "1 to 99"


def test_codes_below_zero_among_counts_are_known_to_the_model(tmp_path):
    rng = np.random.default_rng(0)
    counts, x = rng.poisson(3.0, 60), rng.normal(size=60)
    counts[::15] = -9999
    pd.DataFrame({"visits": counts, "x": x}).to_csv(tmp_path / "x.csv", index=False)
    frame = pd.read_csv(tmp_path / "x.csv")
    assert triage(frame)["visits"].reason.endswith("4 of -9999, treated as missing")
    model = DPMixture(refine=False).fit(tmp_path / "x.csv")
    assert model.state_.codes == ((0, -9999.0),)
    again = model.predict_proba(frame.replace(-9999, np.nan))
    np.testing.assert_allclose(model.predict_proba(frame), again)


def test_two_whole_numbers_and_few_years_make_no_clusters_of_themselves():
    rng = np.random.default_rng(1)
    group = rng.integers(2, size=300)
    days = np.datetime64("2021-01-01") + rng.integers(0, 730, 300).astype("timedelta64[D]")
    frame = pd.DataFrame({
        "x": 8.0 * group + rng.normal(size=300), "y": rng.normal(size=300),
        "sex": rng.integers(1, 3, 300), "when": days,
    })  # fmt: skip
    found = triage(frame)
    assert (found["sex"].role, found["sex"].reason) == ("category", "1 or 2")
    assert found["when"].reason == "month, weekday"
    assert DPMixture().fit(frame).n_clusters_ == 2
    alone = triage(frame.assign(when=pd.to_datetime(np.where(group, "2021-01-01", "2022-01-01"))))
    assert alone["when"].reason.startswith("year")


def test_blanks_stand_between_thousands_only():
    assert cells.number_form(["1 2.66 20 0 0", "2 2.89 22 0 0"], np.ones(2, int)) is None
    assert cells.number_form(["12 345", "1 234 567,5"], np.ones(2, int)) == cells.COMMA


def test_truth_values_are_categories_unless_they_are_all_the_same():
    frame = pd.DataFrame({
        "x": np.arange(40.0) ** 2, "flag": [True] * 40, "case": [0, 1] * 20,
        "rare": ["no"] * 39 + ["yes"], "target": ["yes", "no", "no", "yes"] * 10,
    })  # fmt: skip
    found = triage(frame)
    assert [entry.role for entry in found][1:] == ["constant", "category", "constant", "target"]
    assert found["case"].reason == "0 or 1"


def test_the_triage_of_a_sample_mentions_the_sample():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.append(rng.normal(size=59), np.nan), "k": ["a", "b", "c"] * 20})
    found = triaged(frame, n_rows=1000).triage
    assert found["x"].reason.endswith(" in a sample; 1 missing in a sample")
    assert "sample" not in str(triage(frame))


def test_ranges_are_those_of_all_rows():
    x = np.arange(30_000.0) % 100
    x[12_345] = 1e6
    assert triage(pd.DataFrame({"x": x}))["x"].reason == "0 to 1e+06"


def test_cells_that_cannot_be_read_are_counted():
    rng = np.random.default_rng(0)
    dates = pd.date_range("2020-01-01", periods=60, freq="11D").strftime("%d.%m.%Y")
    frame = pd.DataFrame({"x": rng.normal(size=60), "when": dates})
    model = DPMixture(refine=False).fit(frame)
    new = frame.head(3).astype(object)
    new.loc[0, "x"], new.loc[1:, "when"] = "abc", "soon"
    with pytest.warns(UnseenValuesWarning) as said:
        model.predict(new)
    assert [(one.message.column, one.message.count) for one in said] == [("x", 1), ("when", 2)]
    assert "2 values that cannot be read, such as 'soon': they are treated as missing" in str(
        said[1].message
    )


def test_few_numbers_with_decimals_are_classes():
    rng = np.random.default_rng(1)
    years = np.array([0.5, 2.5, 6.0, 9.0, 13.0, 16.5, 23.0])
    group = rng.integers(2, size=300)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=300) + 6.0 * group,
            "b": rng.normal(size=300) - 6.0 * group,
            "years": years[rng.integers(7, size=300)],
        }
    )
    found = triage(frame)["years"]
    assert (found.role, found.reason) == ("category", "7 numbers")
    model = DPMixture().fit(pl.from_pandas(frame))
    assert model.n_clusters_ == 2
    with pytest.warns(UnseenValuesWarning, match="years"):
        model.predict(frame.head(3).assign(years=[0.5, 2.0, 6.0]))
    gaps = pl.from_pandas(frame.head(20).assign(years=[None, *frame["years"][1:20]]))
    assert model.impute(gaps)["years"][0] in years
    # Few rows, more values and measurements are numbers.
    assert triage(frame.head(60))["years"].role == "number"
    assert triage(frame.assign(years=frame["a"].round(1)))["years"].role == "number"


def test_units_and_dates_that_are_mixed():
    n = 40
    days = [f"{1 + k % 9} day{'s' if k % 9 else ''}" for k in range(n)]
    kilograms = [f"{50 + k} kg" for k in range(n - 1)] + ["120 lb"]
    dates = [f"{1 + k % 28:02d}/{1 + k % 12:02d}/2020" for k in range(n - 8)]
    dates += [f"2021-0{k + 1}-15" for k in range(8)]
    frame = pd.DataFrame({"stay": days, "weight": kilograms, "when": dates})
    found = triaged(frame)
    assert "read as numbers" in found.triage["stay"].reason
    assert "1 other, such as '120 lb', treated as missing" in found.triage["weight"].reason
    assert np.isnan(found.matrix[-1, found.schema.names.index("weight")])
    assert found.triage["when"].role == "date"
    assert "missing" not in found.triage["when"].reason
    new = frame.head(3).assign(weight=["60 kg", "60 lbs", "60"])
    with pytest.warns(UnseenValuesWarning, match="lbs"):
        values = found.schema.encode(new)[:, found.schema.names.index("weight")]
    np.testing.assert_array_equal(values, [60.0, math.nan, 60.0])


def numbers_of(texts):
    """Return the numbers read from texts."""
    frame = pd.DataFrame({"x": np.arange(len(texts)) ** 1.5, "v": texts})
    found = triaged(frame)
    return found.matrix[:, found.schema.names.index("v")]


@pytest.mark.parametrize("n_bare", [0, 20, 200])
def test_the_unit_of_a_column_is_its_most_frequent_whether_most_have_none(n_bare):
    texts = [f"{60 + k / 8}" for k in range(n_bare)] + [f"{70 + k / 8} kg" for k in range(96)]
    values = numbers_of([*texts, *[f"{120 + k} lb" for k in range(4)]])
    assert np.isnan(values[-4:]).all()
    np.testing.assert_array_equal(values[:-4], [float(text.split()[0]) for text in texts])
    # It is that of most rows, not of most texts.
    same = ["5.5 lb"] * 400 + [f"{k}.25 kg" for k in range(20)] + [f"{k}.5" for k in range(100)]
    assert np.isnan(numbers_of(same)[400:420]).all()


def test_mega_is_not_milli_and_other_letters_may_be_small_or_large():
    texts = [f"{50 + k / 4} MW" for k in range(96)]
    for others, missing in [("mW", True), ("mw", True), ("MW", False)]:
        values = numbers_of([*texts, *[f"{60 + k} {others}" for k in range(4)]])
        assert np.isnan(values[-4:]).all() == missing
    for one, other in [("kg", "KG"), ("days", "Day"), ("mA", "ma"), ("mg", "MG"), ("mph", "MPH")]:
        mixed = [f"{50 + k / 4} {other if k % 2 else one}" for k in range(96)]
        assert not np.isnan(numbers_of(mixed)).any()


def levels_of(values, new):
    """Return the levels that new values are read as, after others; None for no level."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=len(values)), "v": values})
    found = triaged(frame)
    column = found.schema.columns[1]
    assert column.kind == "category"
    again = Schema.from_dict(json.loads(json.dumps(found.schema.to_dict())))
    new = pd.DataFrame({"x": np.zeros(len(new)), "v": new})
    return column.decode(again.encode(new)[:, 1])


@pytest.mark.filterwarnings("ignore::dpsearch.errors.UnseenValuesWarning")
def test_levels_that_are_numbers_are_known_by_their_values():
    tenths = np.tile([0.0, 0.1, 0.3, 7.0], 50)
    new = [0.1, 0.1 + 0.2, 7.0, 0.3001, 1e-17, 7.1]
    assert levels_of(tenths, new) == [0.1, 0.3, 7.0, None, 0.0, None]
    single = levels_of(tenths.astype(np.float32), new[:3])
    np.testing.assert_allclose(single, [0.1, 0.3, 7.0], rtol=1e-7)
    assert levels_of(tenths, ["0.1", ".3", "7", "7.0", "7.2", "no"]) == [0.1, 0.3, 7, 7, None, None]
    long = np.tile([1234567, 1234569], 50)
    assert levels_of(long, [1234567, 1234568, 1234569]) == [1234567, None, 1234569]
    assert levels_of(long, ["1234567.0", "1234568"]) == [1234567, None]


@pytest.mark.filterwarnings("ignore::dpsearch.errors.UnseenValuesWarning")
def test_few_numbers_in_texts_are_classes_too():
    prices = ["$0.50", "$2.50", "$6"] * 60
    frame = pd.DataFrame({"x": np.arange(180) ** 1.5, "price": prices})
    found = triage(frame)["price"]
    assert (found.role, found.treatment) == ("category", "read")
    assert found.reason == "3 numbers; read as numbers, such as '$0.50'"
    assert levels_of(prices, ["$6.00", "2.5", "€6", "$7"]) == [6.0, 2.5, None, None]
    assert levels_of(["0,5", "2,5", "6"] * 60, ["0,50", "6"]) == [0.5, 6.0]
    assert levels_of(["1", "2"] * 60, [2, "1"]) == [2, 1]


def test_codes_of_one_column():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(-1, 30, 60), "b": rng.integers(-1, 30, 60)})
    found = triaged(frame, na=["a=-1"])
    np.testing.assert_array_equal(np.isnan(found.matrix).sum(axis=0), [(frame["a"] == -1).sum(), 0])
    with pytest.raises(ParameterError, match=r"missing_codes: no column 'A': did you mean 'a'\?"):
        DPMixture(missing_codes=["A=-1"]).fit(frame)
    renamed = frame.rename(columns={"a": "k=1"})
    assert np.isnan(triaged(renamed, na=["k=1=-1"]).matrix[:, 0]).any()


def test_nines_below_zero_where_nothing_else_is():
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 6, 200)
    for code in (-9, -8, -99):
        frame = pd.DataFrame({"a": np.where(rng.random(200) < 0.1, code, answers)})
        assert f"of {code}, treated as missing" in triage(frame)["a"].reason
    for other in (-1, -5, 9):
        frame = pd.DataFrame({"a": np.where(rng.random(200) < 0.1, other, answers)})
        assert "treated as missing" not in triage(frame)["a"].reason
    changes = pd.DataFrame({"a": rng.integers(-9, 9, 200)})
    assert "treated as missing" not in triage(changes)["a"].reason


def test_names_that_identify():
    rng = np.random.default_rng(0)
    numbers = rng.permutation(90_000)[:200]
    nearly = numbers.copy()
    nearly[:10] = nearly[10:20]

    def roles(columns, names):
        frame = pd.DataFrame(dict.fromkeys(names.split(","), columns) | {"x": rng.normal(size=200)})
        return {entry.role for entry in triage(frame)} - {"number", "copy", "skewed"}

    told = "PID,idno,seqn,caseid,patientID,CustomerId,seq_no,Unnamed: 0,zip code,IDs,e-mail,id 2"
    cases = "patient,Subject,case no,orderNumber,Bon-Nr,school code,record.num,Patient Number"
    for name in (told + "," + cases).split(","):
        assert roles(numbers, name) == {"identifier"}, name
    assert roles(nearly, "patient") == {"identifier"}
    measured = "population,number of patients,total number,humid,bid,paid,cases,no_rooms,weight"
    for name in measured.split(","):
        assert not roles(numbers, name), name
    assert not roles(numbers // 1000, "patient")  # which repeat
    assert roles(numbers // 1000, "userid") == {"identifier"}  # as a user's visits do
    assert roles(numbers % 7 + 11, "PID") == {"ordinal"}  # identification with a party
    some = pd.DataFrame({"patient": numbers[:19], "x": rng.normal(size=19)})
    assert triage(some)["patient"].role == "number"  # of so few nothing is sure
    assert triage(pd.DataFrame({"weight": range(7), "x": range(7, 0, -1)}))["weight"].role == (
        "identifier"
    )

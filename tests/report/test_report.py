"""The report: its statements agree with the data, and data cannot become markup or code."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from browser import chromium
from dpsearch import DPMixture, certify, consensus, families, gibbs, priors
from dpsearch._numbers import Format, brief
from dpsearch.errors import DataError, ParameterError
from dpsearch.refinement.consensus import Consensus
from dpsearch.report import write_report
from dpsearch.report.page import packed, plotly, policy, to_json
from dpsearch.report.profiles import Subsets, profiles
from dpsearch.report.projection import projections
from dpsearch.report.table import Column, Table, top_words
from dpsearch.report.write import rows_to_show

FAMILY = families.Gaussian(0.0, 25.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)
NASTY = "<b>x</b><script>alert(1)</script><!--\u2028&amp;\"'"


class Reader(HTMLParser):
    """The text of a page, its scripts and its data, as a browser would parse them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.tags: list[tuple[str, dict]] = []
        self.inside: dict | None = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside = dict(attrs)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.inside = None

    def handle_data(self, data):
        if self.inside is None:
            self.words.append(data)
        else:
            self.scripts.append((self.inside, data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> dict:
        return json.loads(next(text for about, text in self.scripts if about.get("id")))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 20])
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    X = pd.DataFrame(centres[labels] + rng.normal(size=(90, 2)), columns=["wide", "tall"])
    X.index = [f"item {i}" for i in range(90)]
    return X, labels


@pytest.fixture(scope="module")
def model(table):
    return DPMixture(FAMILY, PRIOR, random_state=0).fit(table[0])


@pytest.fixture(scope="module")
def written(table, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, model, table[0], title="Things")
    return path


# -- what is said ------------------------------------------------------------------------------


def test_summary_and_data_are_those_of_the_model(table, model, written):
    page = Reader(written.read_text())
    assert "90 rows with 2 columns fall into 3 clusters." in page.text
    assert "The largest has 40 rows (44 %), the smallest 20 rows." in page.text
    assert "local search ended because no move improves" in page.text
    data = page.data
    assert data["names"][:2] == ["item 0", "item 1"]
    fitted = [data["branches"][branch] for branch in data["tree"]["fitted"]]
    assert [one["size"] for one in fitted] == [40, 30, 20]
    raw = base64.b64decode(data["columns"][0]["values"]["data"])
    np.testing.assert_array_equal(np.frombuffer(raw), table[0]["wide"])
    assert [point[3] for point in data["trace"]] == [p.step for p in model.clustering_.trace]
    # The second cluster is the one at (9, 0).
    assert fitted[1]["words"].startswith("high wide (")
    assert brief(table[0]["wide"][table[1] == 1].mean()) in fitted[1]["words"]


def test_same_seed_same_file(table, model, written, tmp_path):
    write_report(tmp_path / "again.html", model, table[0], title="Things")
    assert (tmp_path / "again.html").read_bytes() == written.read_bytes()


def test_rows_that_searches_place_differently_are_listed(table, model, tmp_path):
    X = table[0]
    other = model.labels_.copy()
    other[[4, 50]] = 2  # in another cluster, which hardly changes the company of the others
    found = [model.clustering_, replace(model.clustering_, labels=other, log_joint=-1e6)]
    view = Consensus.of(found[::-1])
    assert view.best is found[0]
    path = tmp_path / "moved.html"
    write_report(path, model, X, consensus=view, max_points=10)
    page = Reader(path.read_text())
    assert "1 reached the best log joint. Those within 3 nats" in page.text
    assert "have 3 components. The searches place 2 % of the rows" in page.text
    moved = page.data["moved"]
    rows = [row for row, _ in moved]
    assert rows == [4, 50]  # which has left the larger cluster
    assert moved == [[row, view.disagreement[row]] for row in rows]
    assert set(rows) <= set(np.frombuffer(base64.b64decode(page.data["rows"]["data"]), np.int8))
    few = DPMixture(FAMILY, PRIOR, refine=False).fit(X[:30])
    with pytest.raises(DataError, match="consensus is of 90 rows, but X has 30"):
        write_report(path, few, X[:30], consensus=view)


def test_the_report_says_that_a_table_is_too_wide_for_outliers(table, model, tmp_path, monkeypatch):
    monkeypatch.setattr("dpsearch.explain._MOST", 1000)
    write_report(tmp_path / "wide.html", model, table[0])
    page = Reader((tmp_path / "wide.html").read_text())
    assert "too wide to look for outliers in reasonable time" in page.text
    assert "No row is an outlier" not in page.text


def test_how_sure_it_is(table, model, written, tmp_path):
    X = table[0].to_numpy()
    draws = gibbs(X, FAMILY, priors.DirichletProcess(priors.Gamma(1.0, 1.0)), draws=60, rng=0)
    view = consensus(X, FAMILY, PRIOR, n_restarts=3, rng=0)
    proof = certify(X, model.labels_, FAMILY, PRIOR)
    path = tmp_path / "sure.html"
    write_report(path, model, table[0], certificate=proof, draws=draws, consensus=view)
    page = Reader(path.read_text())
    assert proof.optimal
    assert "Proved best" in page.text
    said = "Of 3 searches from different orders, all reached the best log joint"
    assert said in page.text
    assert "Placed differently by other searches" in page.text
    assert "Placed differently by other searches" not in Reader(written.read_text()).text
    assert f"Of {len(draws)} draws from the posterior" in page.text
    assert "Posterior of the number of clusters K" in page.text
    assert "Posterior of the concentration α" in page.text


def test_profiles_are_those_of_naive_loops():
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=200)
    labels[:3] = [0, 1, 2]
    number = rng.normal(1e6, 1.0, size=200)
    number[::7] = np.nan
    colours = np.array(["red", "green", None], dtype=object)[rng.integers(3, size=200)]
    frame = pd.DataFrame({"number": number, "colour": colours})
    made = Table.of(frame, FAMILY)
    evidence = np.tile([1.0, 2.0], (3, 1))
    for k, group in enumerate(profiles(made, labels, Subsets.alone(evidence))):
        category, amount = group.parts  # most evidence first
        own = labels == k
        assert group.size == own.sum()
        assert amount.mean == pytest.approx(np.nanmean(number[own]), rel=1e-12)
        assert amount.spread == pytest.approx(np.nanstd(number[own]), rel=1e-6)
        assert amount.other_mean == pytest.approx(np.nanmean(number), rel=1e-12)
        for level in category.levels:
            known = own & pd.notna(frame["colour"]).to_numpy()
            assert level.share == pytest.approx((colours[known] == level.name).mean())
        (level,) = category.levels  # of two, the second says it all
        assert category.away == pytest.approx(level.share - level.other_share)


def test_levels_against_the_whole():
    values = np.array([0.0, 0.0, 1.0, 2.0, 2.0, 2.0, np.nan])
    made = Table.of(values[:, None], families.Categorical())
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    first, second = (
        group.parts[0] for group in profiles(made, labels, Subsets.alone(np.zeros((2, 1))))
    )
    assert (second.levels[0].name, second.levels[0].share) == ("2", 1.0)
    assert second.away == pytest.approx(0.5)  # ½ (1/3 + 1/6 + 1/2)
    assert sum(level.share for level in first.levels) == pytest.approx(1.0)
    assert "2 (100\xa0%; all 50\xa0%)" in second.in_words()


def test_words_with_lift():
    counts = sp.csr_matrix([[3, 0, 1], [2, 0, 0], [0, 4, 1], [0, 5, 2]])
    made = Table.of(counts, families.Multinomial(), ["cat", "dog", "the"])
    evidence = np.array([[5.0, 4.0, 0.1], [5.0, 6.0, 0.1]])
    first, second = profiles(made, np.array([0, 0, 1, 1]), Subsets.alone(evidence))
    assert [word.name for word in first.parts] == ["cat"]  # dog sets it apart by its absence
    assert first.parts[0].share == pytest.approx(5 / 6)
    assert first.parts[0].lift == pytest.approx((5 / 6) / (5 / 18))
    assert [word.name for word in second.parts] == ["dog", "the"]
    assert top_words(made, np.array([0, 3]), 1) == ["cat", "dog"]


def test_sample_keeps_what_is_named_and_some_of_each_cluster():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [9000, 900, 5])
    chosen = np.array([17, 4242])
    rows = rows_to_show(labels, chosen, 1000, rng)
    assert len(rows) == len(set(rows)) == 1000
    assert set(chosen) <= set(rows)
    assert (np.bincount(labels[rows])[1:] >= [30, 5]).all()
    assert (np.diff(rows) > 0).all()
    assert (rows_to_show(labels, chosen, 20_000, rng) == np.arange(len(labels))).all()


def test_maps_are_principal_components_of_what_varies():
    rng = np.random.default_rng(0)
    large, line = rng.normal(size=(2, 300))
    near = line + 0.01 * rng.normal(size=300)
    X = np.stack([1e9 * large, -line, np.full(300, 7.0), near], axis=1)
    (found,) = projections(Table.of(X, FAMILY), np.arange(300), 0, umap=False)
    # Two columns agree, so that they come first once units do not matter.
    assert abs(np.corrcoef(found.x, line)[0, 1]) > 0.99
    assert abs(np.corrcoef(found.y, large)[0, 1]) > 0.99
    plane = projections(Table.of(X[:, :2], FAMILY), np.arange(300), 0, umap=False)
    assert plane[0].titles == ["column 0", "column 1"]
    np.testing.assert_array_equal(plane[0].x, X[:, 0])
    counts = sp.csr_matrix(np.kron(np.eye(2, dtype=int), np.ones((20, 5), dtype=int)))
    (words,) = projections(Table.of(counts, families.Multinomial()), np.arange(40), 0, umap=False)
    assert len(set(np.sign(words.x[:20]))) == 1
    assert np.sign(words.x[0]) == -np.sign(words.x[20])


def test_umap_when_installed(monkeypatch):
    class UMAP:
        def __init__(self, random_state):
            self.seed = random_state

        def fit_transform(self, X):
            return np.stack([X[:, 0], np.full(len(X), self.seed)], axis=1)

    made = Table.of(np.random.default_rng(0).normal(size=(40, 3)), FAMILY)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=UMAP))
    first, second = projections(made, np.arange(40), 5)
    assert (first.name, first.y[0]) == ("UMAP", 5)
    assert second.name == "principal components"
    assert len(projections(made, np.arange(40), 5, umap=False)) == 1
    monkeypatch.setitem(sys.modules, "umap", None)  # as if it were not installed
    assert len(projections(made, np.arange(40), 5)) == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, -3], "i1"),
        ([0, 300], "i2"),
        ([70_000.0, 1.0], "i4"),
        ([0.5, np.nan], "f4"),
        ([0.1, 2.0], "f8"),
        ([2**40 + 1, 1], "f8"),
        ([1e300, 0.5], "f8"),
    ],
)
def test_arrays_are_packed_exactly(values, kind):
    out = packed(np.array(values))
    back = np.frombuffer(base64.b64decode(out["data"]), dtype="<" + kind)
    assert out["dtype"] == kind
    np.testing.assert_array_equal(back.astype(np.float64), np.array(values, dtype=np.float64))


# -- other kinds of data -----------------------------------------------------------------------


def test_every_kind_of_data_has_a_report(tmp_path):
    rng = np.random.default_rng(0)
    half = np.repeat([0, 1], 30)
    codes = (rng.random((60, 4)) < np.where(half, 0.9, 0.1)[:, None]).astype(float)
    counts = sp.csr_matrix(rng.poisson(np.where(half[:, None], [1, 4, 1, 1], [4, 1, 1, 1])))
    pixels = rng.normal(size=(60, 12)) + 3.0 * half[:, None]
    kinds = {
        "codes": (codes, families.Bernoulli(), {}),
        "categories": (codes + 1.0 * (codes > 0), families.Categorical(), {}),
        "counts": (counts, families.Multinomial(), {"names": list("abcd")}),
        "dense counts": (counts.toarray(), families.Poisson(), {}),
        "images": (pixels, families.DiagonalGaussian(), {"image_shape": (3, 4)}),
        "bits": (codes, families.Bernoulli(), {"image_shape": (2, 2)}),
        "polars": (pl.DataFrame(pixels[:, :3], list("xyz")), FAMILY, {}),
        "one column": (pixels[:, :1], FAMILY, {}),
        "one row": (pixels[:1, :3], FAMILY, {}),
        "same rows": (np.ones((8, 3)), FAMILY, {}),
    }
    for name, (X, family, options) in kinds.items():
        fitted = DPMixture(family, 1.0, random_state=0, refine=False).fit(X)
        path = tmp_path / f"{name}.html"
        write_report(path, fitted, X, **options)
        data = Reader(path.read_text()).data
        assert len(data["names"]) == X.shape[0], name
        assert data["maps"], name
        if "image_shape" in options:
            means = np.frombuffer(base64.b64decode(data["images"]["means"]), np.uint8)
            assert len(means) == len(data["branches"]) * X.shape[1]
            assert data["columns"] == []


def test_frames_keep_their_levels_and_gaps():
    frame = pd.DataFrame(
        {
            "when": pd.Categorical(["b", None, "a"]),
            "yes": [True, False, True],
            "amount": pd.array([1, None, 3], dtype="Int64"),
        }
    )
    made = Table.of(frame, FAMILY)
    when, yes, amount = made.columns
    assert (when.levels, when.values.tolist()) == (("a", "b"), [1, -1, 0])
    assert yes.levels == ("False", "True")
    np.testing.assert_array_equal(amount.values, [1.0, np.nan, 3.0])
    again = Table.of(pl.from_pandas(frame), FAMILY)
    assert [column.levels for column in again.columns] == [("a", "b"), ("False", "True"), None]


def test_a_model_from_a_file_has_a_report_without_a_trace(table, model, tmp_path):
    from dpsearch import load

    model.save(tmp_path / "model.npz")
    write_report(tmp_path / "report.html", load(tmp_path / "model.npz"), table[0])
    page = Reader((tmp_path / "report.html").read_text())
    assert "90 rows" in page.text
    assert "Log joint over time" not in page.text


def test_errors_name_what_is_wrong_and_leave_no_file(table, model, tmp_path):
    X = table[0]
    path = tmp_path / "report.html"
    for options, message in [
        ({"names": ["one"]}, "names has 1 entries for 2"),
        ({"index": [1, 2]}, "index has 2 entries for 90"),
        ({"image_shape": (3, 4)}, "image_shape 3×4 has 12 pixels"),
        ({"image_shape": 3}, "image_shape must be"),
        ({"image_shape": (0, 2)}, "image_shape must be two integers"),
        ({"max_points": 0}, "max_points must be an integer ≥ 1"),
        ({"max_points": 1.5}, "max_points must be an integer"),
    ]:
        with pytest.raises(ParameterError, match=re.escape(message)):
            write_report(path, model, X, **options)
    with pytest.raises(DataError, match="not the data that the model was fitted to"):
        write_report(path, model, X.iloc[::-1])
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "none" / "report.html", model, X)
    assert list(tmp_path.iterdir()) == []


# -- nothing gets out of place -----------------------------------------------------------------


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    """Return names, cells and titles that try to be code."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) + np.repeat([[0.0], [9.0]], 15, axis=0)
    frame = pd.DataFrame(X, columns=[NASTY, "b</title><img src=x onerror=alert(2)>", "'; --t:9"])
    fitted = DPMixture(FAMILY, PRIOR, random_state=0).fit(frame)
    path = tmp_path_factory.mktemp("nasty") / "nasty.html"
    write_report(path, fitted, frame, title=NASTY, index=[f"{NASTY}{i}\ud800" for i in range(30)])
    return path


def test_everything_from_the_data_is_escaped(nasty):
    page = Reader(nasty.read_text())
    assert "alert(1)" not in "".join(t for a, t in page.scripts if "id" not in a)
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert page.data["columns"][0]["name"] == NASTY
    assert NASTY.split("\u2028")[0] in page.text


def test_json_stands_inside_a_script():
    text = to_json([NASTY, "\u2029"])
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == [NASTY, "\u2029"]


def test_policy_lets_only_the_own_scripts_run(written):
    page = Reader(written.read_text())
    ((_, meta),) = [(t, a) for t, a in page.tags if a.get("http-equiv")]
    assert meta["content"].startswith("default-src 'none';")
    for about, script in page.scripts:
        if not about and script.startswith(("/**", '"use strict"')):
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in meta["content"]
    assert meta["content"] == policy([plotly(), page.scripts[-1][1]])


def test_plotly_is_the_file_that_the_readme_names():
    from importlib.resources import files

    about = files("dpsearch.report").joinpath("assets/README.md").read_text()
    assert hashlib.sha256(plotly().encode()).hexdigest() in about


# -- what columns hold -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """Return money, percentages, years, dates, units, and numbers that are 0 up to rounding."""
    rng = np.random.default_rng(0)
    new = np.repeat([0, 1], 40)
    frame = pd.DataFrame(
        {
            "price": [f"${p:,.2f}" for p in 1000.0 * (1 + 8 * new) + 50.0 * rng.normal(size=80)],
            "discount": [f"{p:.1f}%" for p in 5.0 + 20.0 * new + rng.normal(size=80)],
            "built": 1950 + 50 * new + rng.integers(0, 9, size=80),
            "sold": pd.Timestamp("2008-01-05") + pd.to_timedelta(1500 * new, unit="D"),
            "weight": [f"{w:.0f} kg" for w in 70.0 + 20.0 * new + rng.normal(size=80)],
            "change": np.where(new, 1.5, 8.88e-16) + np.where(new, rng.normal(size=80), 0.0),
            "garage": np.where(rng.random(80) < 0.2 + 0.6 * new, "yes", "no"),
        }
    )
    fitted = DPMixture(random_state=0).fit(frame)
    path = tmp_path_factory.mktemp("houses") / "houses.html"
    write_report(path, fitted, frame, umap=False)
    return path, frame, fitted


def test_words_know_what_columns_hold(houses):
    path, frame, fitted = houses
    assert fitted.n_clusters_ == 2
    data = Reader(path.read_text()).data
    words = " ".join(one["words"] for one in data["branches"])
    every = {name: about for name, *about in data["described"].values()}
    formats = {name: about[2] for name, about in every.items() if about}
    assert [formats[name][0] for name in ("price", "discount", "weight")] == ["$", "%", "kg"]
    assert formats["built"][1]
    assert "sold (month)" in every
    assert re.search(r"built \((195\d|200\d)", words) or "($" in words
    assert "e−" not in words
    assert "2,0" not in words
    text = fitted.explain(frame).summary()
    assert re.search(r"price: \$\d,\d{3}, elsewhere \$\d,\d{3}", text)


# -- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def names_in_table(page):
    return page.locator("#data tbody tr td:first-child").all_inner_texts()


def points_in_map(page):
    return page.evaluate("document.getElementById('plot').data.slice(0, -1).map(t => t.x.length)")


@pytest.mark.slow
def test_legend_filters_map_and_table(browser, written):
    page = browser().open(written)
    assert points_in_map(page) == [40, 30, 20]
    page.click(".toggle[data-k='0']")
    assert points_in_map(page) == [0, 30, 20]
    assert page.get_attribute(".toggle[data-k='0']", "aria-pressed") == "false"
    assert "of 50 rows" in page.inner_text("#page")
    page.click(".only[data-k='2']")
    assert points_in_map(page) == [0, 0, 20]
    page.click("#all")
    assert points_in_map(page) == [40, 30, 20]


@pytest.fixture(scope="module")
def houses_page(browser, houses):
    return browser().open(houses[0])


def test_cells_are_written_as_python_writes_them(houses_page, houses):
    (path, frame, _), page = houses, houses_page
    data = Reader(path.read_text()).data
    heads = [text.strip(" ▲▼") for text in page.locator("#data thead button").all_inner_texts()]
    for name, units in {"price": "$,", "discount": "%", "built": "", "weight": "kg"}.items():
        (column,) = [one for one in data["columns"] if one["name"] == name]
        shown = page.locator(f"#data tbody td:nth-child({heads.index(name) + 1})").all_inner_texts()
        values = pd.to_numeric(frame[name].astype(str).str.replace(r"[$,%kg ]", "", regex=True))
        want = [Format(*column["format"]).text(float(x), 4) for x in values[:25]]
        assert shown == want, units
    shown = page.locator(f"#data tbody td:nth-child({heads.index('change') + 1})").all_inner_texts()
    assert set(shown) == {"0"}
    garage = page.locator(f"#data tbody td:nth-child({heads.index('garage') + 1})")
    assert garage.all_inner_texts() == frame["garage"][:25].tolist()
    sold = page.locator(f"#data tbody td:nth-child({heads.index('sold') + 1})")
    assert sold.all_inner_texts() == frame["sold"].dt.strftime("%Y-%m-%d")[:25].tolist()


def test_rows_are_coloured_by_a_column_and_axes_stay(houses_page, houses):
    (_, frame, _), page = houses, houses_page
    colours = "document.getElementById('plot').data.slice(0, -1).flatMap(t => t.marker.color)"
    rows = "document.getElementById('plot').data.slice(0, -1).flatMap(t => t.customdata)"
    axes = "['xaxis', 'yaxis'].map(a => document.getElementById('plot').layout[a].range)"
    assert len(set(page.evaluate(colours))) == 2
    page.select_option("#tint", label="garage")
    found = pd.Series(page.evaluate(colours), page.evaluate(rows))
    by = found.groupby(frame["garage"].reindex(found.index)).unique()
    assert [len(tones) for tones in by] == [1, 1]
    assert "no" in page.inner_text("#key")
    assert "yes" in page.inner_text("#key")
    page.select_option("#tint", label="price")
    assert len(set(page.evaluate(colours))) > 10
    assert "$" in page.inner_text("#key")
    before = page.evaluate(axes)
    page.click(".only[data-k='1']")
    assert page.evaluate(axes) == before
    page.select_option("#tint", label="cluster")
    assert page.inner_text("#key") == ""


def test_hover_shows_the_row(browser, written, table):
    page = browser().open(written)
    row = int(table[0]["wide"].argmax())  # on the edge, with no other under the pointer
    page.evaluate("document.getElementById('plot').scrollIntoView({behavior: 'instant'})")
    place = page.evaluate(
        """(row) => {
            const plot = document.getElementById("plot"), box = plot.getBoundingClientRect();
            for (const trace of plot.data) {
                const at = (trace.customdata || []).indexOf(row);
                if (at < 0) continue;
                const {xaxis, yaxis} = plot._fullLayout;
                return [box.left + xaxis._offset + xaxis.d2p(trace.x[at]),
                        box.top + yaxis._offset + yaxis.d2p(trace.y[at])];
            }
        }""",
        row,
    )
    page.mouse.move(place[0] - 40, place[1] - 40)
    page.mouse.move(*place, steps=5)
    page.wait_for_selector(f"#tip:visible:has-text('Row item {row}')")
    said = page.inner_text("#tip")
    assert "cluster 1" in said
    shown = float(said.split("wide\n")[1].split("\n")[0].replace("−", "-"))
    assert shown == pytest.approx(table[0]["wide"].iloc[row], rel=1e-3)


def test_table_sorts_and_filters(browser, written, table):
    page = browser().open(written)
    wide = table[0]["wide"]
    page.click("#data thead button:has-text('wide')")
    assert names_in_table(page) == wide.sort_values().index[:25].tolist()
    page.click("#data thead button:has-text('wide')")
    assert names_in_table(page) == wide.sort_values(ascending=False).index[:25].tolist()
    page.fill("input[aria-label='Filter wide']", "> 9")
    assert f"of {(wide > 9).sum()} rows" in page.inner_text("#page")
    page.fill("input[aria-label='Filter tall']", "-0.5..0.5")
    inside = ((wide > 9) & table[0]["tall"].between(-0.5, 0.5)).sum()
    assert f"of {inside} rows" in page.inner_text("#page")
    page.fill("input[aria-label='Filter wide']", "")
    page.fill("input[aria-label='Filter tall']", "")
    page.fill("input[aria-label='Filter row']", "ITEM 7")
    assert "of 11 rows" in page.inner_text("#page")
    page.fill("input[aria-label='Filter row']", "")
    page.click("#next")
    assert page.inner_text("#page") == "26–50 of 90 rows"


def test_filters_of_columns_that_are_called_as_the_reports_own(browser, tmp_path):
    """A data column may be called "cluster", and minus signs may be typed or copied."""
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=(60, 2)) * 3.0 + np.repeat([[0.0], [20.0]], 30, axis=0), 2)
    frame = pd.DataFrame(values, columns=["cluster", "tall"])
    path = tmp_path / "cluster.html"
    fitted = DPMixture(FAMILY, PRIOR, random_state=0, refine=False).fit(frame)
    write_report(path, fitted, frame)
    page = browser().open(path)
    own = page.locator("input[aria-label='Filter cluster']").nth(1)
    texts = frame["cluster"].map(lambda x: f"{x:g}")
    own.fill("1")
    assert f"of {texts.str.contains('1').sum()} rows" in page.inner_text("#page")
    for text in ("-5..-1", "−5..−1", "−5 .. -1"):
        own.fill(text)
        assert f"of {frame['cluster'].between(-5, -1).sum()} rows" in page.inner_text("#page")
    own.fill("")
    page.locator("input[aria-label='Filter cluster']").nth(0).fill("1")
    assert f"of {(fitted.labels_ == 1).sum()} rows" in page.inner_text("#page")


@pytest.mark.slow
def test_keyboard_reaches_everything(browser, written):
    page = browser().open(written)
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """() => { const e = document.activeElement, of = (name) => e.getAttribute(name);
                     return e.id || e.dataset.k && e.className + e.dataset.k ||
                            of("aria-label") || of("href") || e.tagName; }"""
            )
        )
        if "next" in reached:
            break
    wanted = {"#summary", "theme", "across", "up", "toggle0", "only2", "Filter wide", "next"}
    assert wanted <= reached
    page.focus(".toggle[data-k='1']")
    page.keyboard.press("Space")
    assert points_in_map(page) == [40, 0, 20]
    page.focus("#data button.row")
    page.keyboard.press("Enter")
    assert "Row item" in page.inner_text("#tip")
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")


def test_light_and_dark(browser, written):
    page = browser().open(written)

    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.click("#theme")
    assert background() != light
    page.click("#theme")
    assert background() == light
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"  # as was chosen


def test_nasty_names_are_text(browser, nasty):
    page = browser().open(nasty)
    page.on("dialog", lambda dialog: pytest.fail("a name was run as code"))
    shown = NASTY.replace("\u2028", " ")
    heads = page.locator("#data thead button").all_inner_texts()
    assert any(head.startswith(NASTY[:20]) for head in heads)
    assert page.inner_text("h1").startswith(shown[:20])
    page.select_option("#across", label=page.locator("#across option").nth(2).inner_text())
    assert "<b>x</b><script>" in page.locator("#plot .xtitle").text_content()
    page.click("#data button.row >> nth=0")
    assert "<script>" in page.inner_text("#tip")
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.slow
def test_hundred_thousand_points_load(browser, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 25_000)
    X = rng.normal(0.0, 20.0, size=(4, 3))[labels] + rng.normal(size=(100_000, 3))
    fitted = DPMixture(FAMILY, PRIOR, refine=False).fit(X)
    path = tmp_path / "large.html"
    write_report(path, fitted, X)
    assert path.stat().st_size < 6e6
    sampled = Reader(path.read_text())
    assert len(sampled.data["names"]) == 20_000
    assert "20,000 of 100,000 rows, drawn at random" in sampled.text
    write_report(path, fitted, X, max_points=100_000)
    page = browser().open(path)
    assert sum(points_in_map(page)) == 100_000
    assert page.evaluate("document.getElementById('plot').data[0].type") == "scattergl"


def test_pictures_are_painted(browser, tmp_path):
    dark = np.zeros((20, 6))
    dark[:10, :3] = 9.0
    dark[10:, 3:] = 9.0
    X = dark + 0.1 * np.random.default_rng(0).normal(size=dark.shape)
    fitted = DPMixture(families.Gaussian(0.0, 25.0, 0.1), PRIOR, random_state=0).fit(X)
    path = tmp_path / "images.html"
    write_report(path, fitted, X, image_shape=(2, 3))
    page = browser().open(path)
    painted = page.evaluate(
        """Array.from(document.querySelector("#legend canvas").getContext("2d")
             .getImageData(0, 0, 3, 2).data).filter((_, j) => j % 4 === 0)"""
    )
    assert max(painted[:3]) < 40
    assert min(painted[3:]) > 215


def test_fewer_columns_than_names_is_no_trouble():
    column = Column("empty", np.full(3, np.nan))
    made = Table(("a", "b", "c"), (column,))
    (group,) = profiles(made, np.zeros(3, np.int64), Subsets.alone(np.zeros((1, 1))))
    assert np.isnan(group.parts[0].mean)
    assert group.parts[0].packed() == [0, 0.0, None, None]


# -- notebooks -----------------------------------------------------------------------------------


def test_notebooks_show_sizes(table, model):
    shown = model.clustering_._repr_html_()
    assert "90 points in <b>3 clusters</b>" in shown
    assert re.findall(r">(\d+)</td></tr>", shown) == ["40", "30", "20"]
    plain = DPMixture()._repr_html_()
    fitted = model._repr_mimebundle_()["text/html"]
    assert "clusters</b>" not in plain
    assert "DPMixture, gaussian family" in fitted
    assert shown.split("<table")[1] in fitted

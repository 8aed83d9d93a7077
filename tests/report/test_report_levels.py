"""The report's tree: the page cuts it as the model does, and updates everything else."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from browser import chromium
from dpsearch import DPMixture, families, priors
from dpsearch.report import summary, write_report
from dpsearch.report.branches import Branches
from dpsearch.report.profiles import Number, Profile, Subsets, profiles
from dpsearch.report.table import Table
from explaining import paired_groups

FAMILY = families.Gaussian(0.0, 100.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)


@pytest.fixture(scope="module")
def table():
    return paired_groups('item "{}"')


@pytest.fixture(scope="module")
def model(table):
    return DPMixture(FAMILY, PRIOR, level=5, random_state=0).fit(table)


@pytest.fixture(scope="module")
def written(table, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels") / "report.html"
    write_report(path, model, table)
    return path


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser, written):
    """One page for tests that choose a level themselves."""
    return browser().open(written)


def choose(page, n_clusters):
    page.evaluate(
        """(n) => new Promise((done) => {
            const slider = document.getElementById("level");
            slider.value = n;
            slider.dispatchEvent(new Event("input"));
            requestAnimationFrame(() => requestAnimationFrame(done));
        })""",
        n_clusters,
    )


def downloaded(page):
    with page.expect_download() as waiting:
        page.click("#export")
    with open(waiting.value.path(), newline="", encoding="utf-8") as stream:
        return waiting.value.suggested_filename, list(csv.DictReader(stream))


def test_branches_are_clusters_of_every_level(model, table):
    explanation = model.explain(table)
    branches = Branches.of(model, explanation)
    sets = branches.subsets.sets
    assert len(sets) == 2 * model.n_components_ - 1
    for count in range(1, model.n_components_ + 1):
        other = model.at_level(count)
        found = other.explain()
        for k in range(count):
            (branch,) = np.flatnonzero((sets == (other.mixture_.groups == k)).all(axis=1))
            np.testing.assert_allclose(
                branches.subsets.evidence[branch], found.columns[k], rtol=1e-9, atol=1e-9
            )
            near = branches.subsets.sibling[branch]
            parts = other.mixture_.groups
            if count > 1 and (sets[near] == (parts == found.nearest[k])).all():
                np.testing.assert_allclose(
                    branches.subsets.contrast[branch],
                    found.against_nearest[k],
                    rtol=1e-9,
                    atol=1e-9,
                )


def test_clusters_that_are_not_nodes_come_after_the_nodes(model, table):
    coarse = model.at_level(4, min_cluster_size=4)
    explanation = coarse.explain(table)
    branches = Branches.of(coarse, explanation)
    nodes = 2 * model.n_components_ - 1
    assert branches.fitted.max() >= nodes
    for k, branch in enumerate(branches.fitted):
        own = branches.subsets.sets[branch]
        np.testing.assert_array_equal(own, coarse.mixture_.groups == k)
        np.testing.assert_allclose(branches.subsets.evidence[branch], explanation.columns[k])


def test_profiles_of_sets_are_those_of_their_rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    frame = pd.DataFrame({"amount": rng.normal(size=90), "kind": rng.choice(list("xyz"), size=90)})
    sets = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1]], bool)
    wanted = Subsets(sets, np.ones((3, 2)), np.full((3, 2), 2.0), np.array([1, 0, -1]))
    found = profiles(Table.of(frame, FAMILY), labels, wanted)
    second = labels > 0
    amount, kind = found[1].parts
    assert found[1].size == second.sum()
    assert amount.mean == pytest.approx(frame["amount"][second].mean())
    assert amount.spread == pytest.approx(frame["amount"][second].std(ddof=0))
    shares = frame["kind"][second].value_counts(normalize=True)
    assert {one.name: one.share for one in kind.levels} == pytest.approx(shares.to_dict())
    against, _ = found[1].against  # the other one, not all
    assert against.other_mean == pytest.approx(frame["amount"][~second].mean())
    assert found[2].against == ()


def agrees(page, model, table):
    """Check that the file that the page exports has the model's labels and certainties."""
    name, lines = downloaded(page)
    index, explanation = table.index, model.explain(table)
    found = [float(line["certainty"]) for line in lines]
    np.testing.assert_allclose(found, explanation.certainty, atol=2e-3)
    doubtful = explanation.borderline[:12]
    others = [
        "a new cluster" if k == model.n_clusters_ else str(k) for k in explanation.second[doubtful]
    ]
    told = page.locator("#borderline tbody td:nth-child(4)").all_inner_texts()
    assert [text.split(",")[0] for text in told] == others
    assert name == f"labels-{model.n_clusters_}-clusters.csv"
    assert [line["row"] for line in lines] == list(index)
    assert [int(line["cluster"]) for line in lines] == model.labels_.tolist()
    assert [int(line["component"]) for line in lines] == model.component_labels_.tolist()
    apart = model.rows_apart_[model.labels_]
    assert [int(line["apart_from"]) for line in lines] == apart.tolist()


def test_the_page_cuts_the_tree_as_the_model_does(page, model, table):
    for count in (1, 2, 4, 6, 8):
        choose(page, count)
        agrees(page, model.at_level(count), table)


def test_clusters_keep_their_colours_at_every_level(page):
    look = """() => Object.fromEntries(
        [...document.querySelectorAll(".toggle[data-k]")].map((one) => [
        Math.min(...one.dataset.components.split(" ")),
        one.querySelector("svg").style.color + one.querySelector("path").getAttribute("d")]))"""
    seen: dict[str, str] = {}
    for count in (2, 4, 8, 3):
        choose(page, count)
        shown = page.evaluate(look)  # by the largest component
        assert len(set(shown.values())) == len(shown)
        assert all(seen.setdefault(k, tone) == tone for k, tone in shown.items())


def test_names_are_kept_in_the_link_and_in_the_labels(browser, written, model, table):
    opened = browser()
    page = opened.open(written)
    choose(page, 8)
    page.fill("[aria-label='Name of cluster 1']", 'big, "blue" & <b>')
    page.keyboard.press("Tab")
    assert "big" in page.inner_text(".toggle[data-k='1']")
    assert any("Compared with big" in text for text in page.locator(".against").all_inner_texts())
    page.click("nav a[href='#table']")  # does not lose it
    page.dispatch_event("#level", "change")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready]")
    assert page.inner_text("#level-said") == "8 clusters"
    _, lines = downloaded(page)
    coarse = model.at_level(8)
    names = ['big, "blue" & <b>' if k == 1 else "" for k in coarse.labels_]
    assert [line["name"] for line in lines] == names
    page.fill("input[aria-label='Filter cluster']", "BLUE")
    assert f"of {coarse.mixture_.cluster_sizes[1]} rows" in page.inner_text("#page")
    assert opened.errors == []


def test_map_profiles_and_table_follow_the_level(browser, written, model):
    page = browser().open(written)
    points = "document.getElementById('plot').data.slice(0, -1).map(t => t.x.length)"
    assert page.evaluate(points) == [*model.mixture_.cluster_sizes[:3].tolist(), 3]
    assert page.locator("#fitted").is_disabled()
    choose(page, 8)
    other = model.at_level(8)
    sizes, apart = other.mixture_.cluster_sizes, other.rows_apart_ >= 0
    assert apart.sum() == 2  # one of a row, one of two
    assert page.evaluate(points) == [*sizes[~apart].tolist(), 3]
    assert page.inner_text("#level-said") == "8 clusters"
    assert page.locator("#cards article").count() == 6
    assert page.locator(".heat tbody tr").count() == 6
    small = page.locator(".apart")
    assert "2 clusters of at most four rows" in small.inner_text()
    small.locator("summary").click()
    assert f"nearest to cluster {other.rows_apart_[6]}" in small.inner_text()
    page.fill("input[aria-label='Filter cluster']", "5")
    assert f"of {sizes[5]} rows" in page.inner_text("#page")
    page.click("#fitted")
    page.wait_for_function("document.querySelectorAll('#cards article').length === 3")


def test_a_card_contrasts_a_cluster_with_its_sibling(page, model):
    choose(page, 8)
    explanation = model.at_level(8).explain()
    for k in range(6):
        near = explanation.nearest[k]
        said = page.inner_text(f"#cluster-{k} .against")
        assert f"Compared with cluster {near}, the nearest: wide is " in said
        assert "tall" not in said  # a pair differs in one column
    splits = page.locator(".split").all_inner_texts()
    assert len(splits) == 5  # rows apart are not in the tree
    assert all(text.startswith("↑") for text in splits)


@pytest.mark.slow
def test_components_are_shown_inside_clusters_on_demand(browser, written, model):
    page = browser().open(written)
    assert page.locator(".inside").count() == 0
    page.check("#inside")
    assert page.locator(".inside > li").count() == 6  # three pairs
    notes = page.evaluate("document.getElementById('plot').layout.annotations.length")
    assert notes == model.n_components_
    page.click("[aria-label='Show only component 2']")
    shown = page.evaluate("document.getElementById('plot').data.flatMap(t => t.customdata ?? [])")
    assert sorted(shown) == np.flatnonzero(model.component_labels_ == 2).tolist()
    pressed = page.locator(".toggle[data-k][aria-pressed=true]")
    assert pressed.count() == 1
    page.keyboard.press("Tab")
    page.focus("#level")
    page.keyboard.press("ArrowRight")  # the slider is one of the keyboard's
    page.wait_for_function("document.getElementById('level-said').textContent === '6 clusters'")


@pytest.mark.slow
def test_clusters_that_are_not_a_cut_are_shown_unchanged(browser, table, model, tmp_path):
    coarse = model.at_level(4, min_cluster_size=4)
    path = tmp_path / "coarse.html"
    write_report(path, coarse, table)
    page = browser().open(path)
    agrees(page, coarse, table)
    assert page.locator("#cards article").count() == 4
    choose(page, 5)
    agrees(page, model, table)
    page.click("#fitted")
    page.wait_for_function("document.querySelectorAll('#cards article').length === 4")
    agrees(page, coarse, table)


def test_rows_that_take_no_part_are_no_reason_to_refuse_the_data(tmp_path):
    """The most probable component of a row need not be in its most probable cluster."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 3.0], [0.0, -3.0], [2.95, 0.0]], 30, axis=0)
    X = np.vstack([X + 0.1 * rng.normal(size=X.shape), [[0.0, 0.0]]])
    weights = np.append(np.ones(90, np.int64), 0)
    fitted = DPMixture(FAMILY, PRIOR, random_state=0).fit(X, sample_weight=weights)
    own = fitted.component_labels_
    groups = np.zeros(3, np.int64)
    groups[own[60]] = 1
    state = fitted.state_._replace(mixture=fitted.mixture_.grouped(groups))
    model = DPMixture.from_state(state)
    assert (own[90], model.explain(X).labels[90]) == (own[60], 0)
    write_report(tmp_path / "report.html", model, X, umap=False)


def test_the_number_of_clusters_is_shown_with_its_reason(table, tmp_path):
    fitted = DPMixture(FAMILY, PRIOR, random_state=0).fit(table)
    path = tmp_path / "auto.html"
    write_report(path, fitted, table, umap=False)
    text = path.read_text()
    for part in fitted.level_reason_.split("; "):
        assert f"<li>{part[0].upper()}{part[1:]}.</li>" in text
    assert "<li>Fits to halves of the rows found" in text
    assert ", shown as rows apart." in text


def test_notebooks_show_clusters_not_components(model):
    shown = model._repr_mimebundle_()["text/html"]
    assert f"240 points in <b>5 clusters</b> ({model.level_reason_})" in shown
    sizes = [int(size) for size in re.findall(r">(\d+)</td></tr>", shown)]
    assert sizes == model.mixture_.cluster_sizes.tolist()


def test_the_report_mentions_that_the_number_of_clusters_was_given(table, model, tmp_path):
    write_report(tmp_path / "one.html", model.at_level(1), table, umap=False)
    text = (tmp_path / "one.html").read_text()
    assert "fall into a single cluster, as requested." in text
    assert "nothing in the data calls for more" not in text


@pytest.mark.parametrize(
    ("sizes", "apart", "said"),
    [
        ([40, 4, 3, 1], [-1, -1, 0, 0],
         "The largest has 40 rows (83\u00a0%), the smallest 4 rows, not counting"
         " 2 clusters with 4 rows in all, shown as rows apart."),
        ([40, 1], [-1, 0],
         "One has 40 rows (98\u00a0%); 1 cluster of 1 row is shown as rows apart."),
        ([40, 2, 2], [-1, 0, 0],
         "One has 40 rows (91\u00a0%); 2 clusters of 2 rows each are shown as rows apart."),
        ([30, 10], [-1, -1], "The largest has 30 rows (75\u00a0%), the smallest 10 rows."),
    ],
)  # fmt: skip
def test_each_cluster_is_counted_once(sizes, apart, said):
    groups = [Profile(size, size / sum(sizes), ()) for size in sizes]
    text = summary.found(Table(("a",)), groups, np.array(apart))
    assert text.endswith(f"clusters. {said}")


def test_statements_based_on_a_sample_mention_the_sample(table, model):
    explanation = model.explain(table)
    n = len(table)
    for certainty, p_value in ((0.5, 1.0), (1.0, 1e-5)):
        one = replace(
            explanation,
            certainty=np.append(np.ones(n - 1), certainty),
            p_value=np.append(np.ones(n - 1), p_value),
        )
        whole = summary.how_sure(model.clustering_, one)[1:]
        some = summary.how_sure(model.clustering_, one, sample=True)[1:]
        assert not any("sample" in text for text in whole)
        assert all(f"a sample of {n} rows" in text for text in some)
    assert "(by chance alone, fewer than one of" in whole[-1]


def test_spreads_are_rounded_each_by_its_own_size():
    number = Number(0, "time", 1.0, 100.0, 3.21, 102.0, 1371.0)
    assert number.in_words() == "time closer together (±\u00a03.21; all ±\u00a01,371)"

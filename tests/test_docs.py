"""The code in the documents runs and prints what they show; their example family obeys the laws."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import documents
import enumeration
from dpsearch import DPMixture, certify, families, load, log_joint, priors, search
from dpsearch.errors import CapabilityError, DataError, ModelFileError, ParameterError
from dpsearch.items import log_marginals, log_predictive
from dpsearch.problem import Problem
from models import ALL_PRIORS
from outside import as_registered_before

ROOT = Path(__file__).parents[1]


PAGES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
PAGES += ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
DOCUMENTS = [page for page in PAGES if documents.blocks(ROOT / page)]
EXAMPLE = "docs/add_a_family.md"


def test_blocks_are_found():
    assert EXAMPLE in DOCUMENTS
    family, use, *_ = documents.blocks(ROOT / EXAMPLE)
    assert "class Geometric" in family.code
    assert family.output is None
    assert use.output == "2\nTrue\n2\n"


# Pages that take longest, whose commands other tests run as well.
LONG = {
    "docs/text.md", "docs/wishes.md", "docs/add_a_prior.md", "docs/exact.md", "docs/automatic.md",
    "docs/tutorial.md", "docs/too_many_clusters.md", "docs/shards.md", "docs/sensors.md",
    "docs/embeddings.md", "docs/images.md", "docs/large_data.md", "docs/single_cell.md",
    "docs/survey.md", "docs/report.md",
}  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [pytest.param(page, marks=pytest.mark.slow if page in LONG else ()) for page in DOCUMENTS],
)
def test_the_code_runs_and_prints_what_it_says(document, tmp_path, request):
    if document == EXAMPLE:  # whose kernels take long to compile: once, for all tests here
        request.getfixturevalue("page")
        return
    with as_registered_before():
        documents.check(ROOT / document, tmp_path)


def anchors(text):
    """Return the anchors of headings: lower-case letters and hyphens only."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (ROOT / page).parent / name if name else ROOT / page
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there.read_text("utf-8")), f"{page}: {target}"


# -- the example family ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's code as a module, which prints what the page shows."""
    with as_registered_before():
        return documents.check(ROOT / EXAMPLE, tmp_path_factory.mktemp("docs"))[0]


@pytest.fixture(scope="module")
def Geometric(page):
    """A family with the required methods only."""
    return page.Geometric


@pytest.fixture(scope="module")
def example(Geometric):
    """The page's example: a family and data."""
    (found,) = Geometric.examples()
    return found.family, found.X


def geometric_log_marginal(family, X):
    """log H as the integral of the likelihood over p, column by column."""
    out = 0.0
    for x in X.T:

        def density(p, x=x):
            return np.exp(stats.geom.logpmf(x + 1, p).sum()) * stats.beta.pdf(p, family.a, family.b)

        out += np.log(quad(density, 0.0, 1.0, epsabs=0.0, epsrel=1e-11, limit=200)[0])
    return out


def test_its_marginal_is_the_integral_of_its_likelihood(example):
    family, X = example
    model = family.compile(X)
    for n in (1, 2, 5, 12):
        pool, sizes = model.rows(model.items(X[:n])[0], np.zeros(n, np.int64), 1)
        assert sizes.tolist() == [n]
        want = geometric_log_marginal(family, X[:n])
        assert log_marginals(model.core, pool, 1)[0] == pytest.approx(want, rel=1e-9)


def test_its_predictives_in_any_order_add_up_to_the_marginal(example):
    family, X = example
    model = family.compile(X)
    rng = np.random.default_rng(0)
    for _ in range(5):
        X = X[rng.permutation(len(X))]
        pool, chain = model.empty_row(), 0.0
        assert log_marginals(model.core, pool, 1)[0] == pytest.approx(0.0, abs=1e-12)
        for i in range(len(X)):
            chain += log_predictive(model.core, model.items(X[i : i + 1])[0], pool)[0, 0]
            pool, _ = model.rows(model.items(X[: i + 1])[0], np.zeros(i + 1, np.int64), 1)
            assert log_marginals(model.core, pool, 1)[0] == pytest.approx(chain, abs=1e-9)


def test_its_rows_can_be_added_to_taken_from_and_merged(example):
    family, X = example
    functions, model = family.functions, family.compile(X)
    params, nothing = model.core.params, np.empty(0, np.int32)
    items, _ = model.items(X)
    halves, _ = model.rows(items, (np.arange(12) >= 5).astype(np.int64), 2)
    whole, _ = model.rows(items, np.zeros(12, np.int64), 1)
    first, second = halves.reshape(2, -1)
    row = first.copy()
    functions.merge(params, row, second, 1.0)
    np.testing.assert_allclose(row, whole)
    functions.merge(params, row, first, -1.0)
    np.testing.assert_allclose(row, second)
    for x in X[5:]:
        functions.update(params, row, nothing, x, -1.0)
    np.testing.assert_allclose(row, model.empty_row(), atol=1e-12)
    functions.update(params, row, nothing, X[0], 3.0)
    tripled, _ = model.rows(model.items(X[[0, 0, 0]])[0], np.zeros(3, np.int64), 1)
    np.testing.assert_allclose(row, tripled)


@pytest.mark.parametrize("prior", ALL_PRIORS, ids=repr)
def test_search_finds_its_best_partition(Geometric, prior):
    rng = np.random.default_rng(0)
    for _ in range(5):
        X = rng.geometric(rng.choice([0.02, 0.6], size=(6, 1)), size=(6, 2)) - 1.0
        family = Geometric(rng.uniform(0.5, 3.0), rng.uniform(0.5, 3.0))
        best = enumeration.best(Problem(X, family, prior))
        wide = search(X, family, prior, beam_size=1000)
        assert wide.log_joint == pytest.approx(best, abs=1e-9)
        assert wide.log_joint == pytest.approx(log_joint(X, wide.labels, family, prior), abs=1e-9)
        for arguments in (
            {"beam_size": 1},
            {"beam_size": 10, "method": "beam"},
            {"beam_size": 10, "method": "best-first"},
            {"beam_size": None, "method": "best-first"},
            {"beam_size": None, "heuristic": "replica"},
            {"order": "random", "rng": 1},
            {"order": "descending"},
        ):
            result = search(X, family, prior, **arguments)
            assert result.log_joint <= best + 1e-9
            assert result.log_joint >= log_joint(X, np.zeros(6), family, prior) - 50.0
            value = log_joint(X, result.labels, family, prior)
            assert result.log_joint == pytest.approx(value, abs=1e-9)


def test_errors_name_the_capability_that_the_family_lacks(example):
    family, X = example
    model = DPMixture(family).fit(X)
    gaps = np.array([[np.nan, 1.0]])
    prior = priors.DirichletProcess(1.0)

    def searched(heuristic):
        search(X, family, prior, heuristic=heuristic, beam_size=None)

    def proved():
        certify(X, model.labels_, family, prior)

    for call, needs, name, write in (
        (lambda: model.explain(), "explain", "columns", "its method columns"),
        (lambda: model.impute(gaps), "clusters of complete data", "columns", "with rows"),
        (lambda: model.sample(2), "sample", "draws", "its method draws"),
        (lambda: model.outliers(X), "outliers", "draws", "its method draws"),
        (lambda: proved(), "certify", "log_ceiling", "its method log_ceiling"),
        (lambda: searched("trivial"), "'trivial'", "log_ceiling", "its method log_ceiling"),
        (lambda: searched("admissible"), "'admissible'", "bounds", "the function 'bound'"),
    ):
        said = f"{needs}.* needs the capability '{name}', which the geometric family does not have:"
        with pytest.raises(
            CapabilityError, match=f"{said} implement .*{write}.* as docs/add_a_family"
        ):
            call()
    negative = X.copy()
    negative[2, 1] = -1.0
    with pytest.raises(DataError, match="geometric family takes counts, but X at row 2, column 1"):
        search(negative, family, ALL_PRIORS[0])
    with pytest.raises(ParameterError, match="no family 'geometric'"):
        DPMixture(family="geometric").fit(X)


def test_the_estimator_takes_it_and_its_files_come_back(Geometric, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.geometric(np.repeat([[0.5], [0.02]], 30, axis=0), size=(60, 2)) - 1.0
    family = Geometric(1.5, 0.5)
    prior = priors.DirichletProcess(1.0)
    model = DPMixture(family=family, alpha=prior, random_state=0).fit(X)
    assert model.n_clusters_ == 2
    assert model.log_joint_ == pytest.approx(log_joint(X, model.component_labels_, family, prior))
    for x in X[[0, 59]]:
        terms = [
            np.log(np.array([*np.bincount(model.labels_), 1.0])[k] / 61.0)
            + geometric_log_marginal(family, np.vstack([X[model.labels_ == k], x]))
            - (geometric_log_marginal(family, X[model.labels_ == k]) if k < 2 else 0.0)
            for k in range(3)
        ]
        want = np.logaddexp.reduce(terms)
        assert model.score_samples(x[None])[0] == pytest.approx(want, abs=1e-6)
    model.save(tmp_path / "model.npz")
    with pytest.raises(ModelFileError, match="no family 'geometric'"):
        load(tmp_path / "model.npz")
    with families.FAMILIES.knowing(Geometric):
        loaded = load(tmp_path / "model.npz")
    assert loaded.family_ == family
    assert np.array_equal(loaded.labels_, model.labels_)
    assert loaded.log_joint_ == model.log_joint_
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-10)
    np.testing.assert_allclose(loaded.score_samples(X), model.score_samples(X), atol=1e-10)


def test_with_its_capabilities_everything_works(page, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.geometric(np.repeat([[0.5, 0.3], [0.02, 0.3]], 30, axis=0)) - 1.0
    family, prior = page.Bounded(1.5, 0.5), priors.DirichletProcess(1.0)
    model = DPMixture(family, alpha=prior, random_state=0).fit(X)
    found = model.explain(X)
    for k, d in np.ndindex(model.n_clusters_, 2):
        inside, outside = X[model.labels_ == k][:, [d]], X[model.labels_ != k][:, [d]]
        parts = [geometric_log_marginal(family, part) for part in (inside, outside, X[:, [d]])]
        assert found.columns[k, d] == pytest.approx(parts[0] + parts[1] - parts[2], abs=1e-6)
    assert found.indicative(0)[0].column == "column 0"
    assert 60 in model.outliers(np.vstack([X, [[0.0, 1e6]]]))
    drawn, _ = model.sample(200)
    assert np.isfinite(model.score_samples(drawn)).all()
    # Rows with gaps, by clusters of complete data and by clusters of rows with gaps.
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    whole = model.predict_proba(gaps)
    np.testing.assert_allclose(whole[1], model.predict_proba(X)[1], atol=1e-12)
    assert np.isfinite(whole).all()
    assert not np.isnan(model.impute(gaps)).any()
    again = DPMixture(family, alpha=prior, random_state=0).fit(gaps)
    assert again.n_clusters_ == 2
    assert not np.isnan(again.impute(gaps)).any()
    assert np.isfinite(again.explain(gaps).columns).all()
    result = certify(X[::12], model.labels_[::12], family, prior)
    assert result.lower_bound <= result.upper_bound
    # With others in a product, and from a file.
    product = families.Product([(family, [1]), (families.Poisson(), [0])])
    both = DPMixture(product).fit(X)
    assert both.explain(X).columns.shape == (both.n_clusters_, 2)
    assert both.sample(5)[0].shape == (5, 2)
    model.save(tmp_path / "model.npz")
    with families.FAMILIES.knowing(page.Bounded):
        loaded = load(tmp_path / "model.npz")
        named = DPMixture("geometric").fit(X)
    assert loaded.family_ == family
    np.testing.assert_array_equal(loaded.outliers(X), model.outliers(X))
    assert named.family_ == page.Bounded()

"""`dpsearch certify` and `DPMixture(certify=…)`."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_line import complains
from dpsearch import DPMixture, certify, families, load, priors
from dpsearch._archive import write_archive
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.exact.certificate_file import write_certificate
from dpsearch.progress import Stages

GAUSSIAN = families.Gaussian(0.0, 25.0, 1.0)


def table(n=60):
    rng = np.random.default_rng(0)
    return np.repeat([[0.0, 0.0], [7.0, -7.0]], n // 2, axis=0) + rng.normal(size=(n, 2))


@pytest.fixture
def certified(run):
    """Run `dpsearch certify` in a folder with a table and a model of it."""
    np.save("x.npy", table())
    DPMixture(GAUSSIAN, 1.0, random_state=0).fit(table()).save("model.npz")
    return lambda *arguments: run("certify", *arguments)


def test_a_model_is_certified_and_verified(certified):
    code, _, said = certified("model.npz", "x.npy", "--verify", "--labels", "best.csv")
    assert code == 0
    assert said.startswith("optimal: log joint ")
    assert said.endswith("\nverified\n")
    labels = np.loadtxt("best.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    np.testing.assert_array_equal(labels, load("model.npz").labels_)


def test_few_rows_are_verified_in_interval_arithmetic(certified):
    np.save("few.npy", table(10))
    DPMixture(GAUSSIAN, 1.0, random_state=0).fit(table(10)).save("few.npz")
    code, _, said = certified("few.npz", "few.npy", "--exact", "--out", "proof.npz")
    assert code == 0
    assert said.endswith("\nverified, in interval arithmetic\n")
    code, _, said = certified("--check", "proof.npz", "few.npy", "--exact")
    assert (code, said.endswith("\nverified, in interval arithmetic\n")) == (0, True)
    np.save("other.npy", table(10) + 1e-7)
    complains(certified("--check", "proof.npz", "other.npy", "--exact"), "proves nothing about")
    complains(certified("model.npz", "x.npy", "--exact"), "dpsearch: --exact needs at most 16 rows")


def test_statements_about_numbers_and_pairs(certified):
    asked = ("--numbers", "1,2", "--pairs", "0-1,0-59")
    code, _, said = certified("model.npz", "x.npy", *asked)
    assert code == 0
    assert "every partition into 1 component is at least " in said
    assert "the best partition is into 2 components" in said
    assert "rows 0 and 59 are apart in every partition within 5 nats" in said
    found = json.loads(certified("model.npz", "x.npy", *asked, "--json")[1])
    assert [one["n_clusters"] for one in found["numbers"]] == [1, 2]
    assert found["pairs"][1] == {"rows": [0, 59], "proved": "apart"}
    code, _, said = certified("model.npz", "x.npy", "--pairs", "3")
    assert code == 1
    assert "--pairs must look like" in said


def test_invalid_pairs_and_numbers_are_refused_before_any_work(certified, monkeypatch):
    monkeypatch.setattr("dpsearch.exact.certify", None)
    asked = {
        ("--pairs", "0-0"): "--pairs must name two different rows from 0 to 59, got 0-0",
        ("--pairs", "1-60"): "--pairs must name two different rows from 0 to 59, got 1-60",
        ("--numbers", "61"): "--numbers must lie between 1 and 60, the number of rows, got 61",
        ("--exact",): "--exact needs at most 16 rows",
    }
    for options, message in asked.items():
        complains(certified("model.npz", "x.npy", *options), message)
    Path("x.clusters").mkdir()
    complains(
        certified("--check", "x.clusters", "x.npy"), "x.clusters: a folder, not a certificate"
    )


def test_pairs_in_one_column_and_under_a_family_that_has_no_proofs_of_them(certified):
    X = np.abs(table(20)[:, :1]) + 0.1
    np.save("one.npy", X)
    DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X).save("one.npz")
    assert "rows 0 and 19 are apart" in certified("one.npz", "one.npy", "--pairs", "0-19")[2]
    DPMixture("gamma", 1.0, random_state=0).fit(X).save("gamma.npz")
    code, _, said = certified("gamma.npz", "one.npy", "--pairs", "0-19", "--numbers", "20")
    assert code == 0
    assert said.startswith("within ")
    assert "more time" not in said
    assert "rows 0 and 19 are not proved together or apart" in said


def test_json_and_a_better_partition(certified):
    poor = DPMixture(GAUSSIAN, 1.0, refine=False)
    X = np.random.default_rng(3).normal(size=(80, 2)) * 3.0
    poor.fit(X).save("poor.npz")
    np.save("cloud.npy", X)
    code, out, said = certified("poor.npz", "cloud.npy", "--json")
    assert code == 0
    assert said == ""
    found = json.loads(out)
    assert found["optimal"]
    assert found["improvement"] > 0.0
    assert found["log_joint"] == pytest.approx(poor.log_joint_ + found["improvement"])
    assert found["upper_bound"] == pytest.approx(found["log_joint"], abs=1e-6)
    _, _, said = certified("poor.npz", "cloud.npy")
    assert "a better partition was found" in said


@pytest.mark.slow
def test_what_the_fit_completed_is_completed_again(run):
    """A table with gaps is fitted with full covariances."""
    X = np.repeat([[0.0, 0.0], [9.0, -9.0]], 80, axis=0)
    X += np.random.default_rng(0).normal(size=X.shape) @ [[1.0, 0.9], [0.0, 0.4]]
    X[::9, 0] = np.nan
    X[4::11, 1] = np.nan
    np.save("empty.npy", X)
    assert run("fit", "empty.npy", "--quiet")[0] == 0
    complains(run("certify", "empty.clusters", "empty.npy"), "empty.npy: 1 row without any values")
    X[81, 1] = -9.0  # which lacked both
    np.save("x.npy", X)
    assert run("fit", "x.npy", "--refine", "no", "--quiet")[0] == 0
    model = load("x.clusters/model.npz")
    assert model.family_.name == "full_gaussian"
    code, out, err = run("certify", "x.clusters", "x.npy", "--time-limit", "0s", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["log_joint"] >= model.log_joint_ - 1e-6
    options = ["--draws", 10, "--chains", 1, "--quiet", "--force"]
    for more in (["--model", "x.clusters"], []):
        assert run("sample", "x.npy", *options, *more)[0] == 0
    # A model from a file judges the rows as the one that was fitted to them.
    fitted = DPMixture(refine=False, n_jobs=-1, random_state=0).fit(X)
    want = fitted.explain(X).certainty
    np.testing.assert_allclose(model.explain(X).certainty, want, rtol=1e-13)
    np.testing.assert_array_equal(model.completed_, fitted.completed_)
    # Other rows are not those.
    X[0, 1] += 1.0
    np.save("y.npy", X)
    code, _, err = run("certify", "x.clusters", "y.npy")
    assert (code, err.count("\n")) == (1, 1)
    assert "y.npy" in err
    assert load("x.clusters/model.npz").explain(X).certainty.shape == (160,)


def test_it_says_what_it_is_doing(certified, monkeypatch):
    told = []
    monkeypatch.setattr(Stages, "begin", lambda self, stage: told.append(stage))
    assert certified("model.npz", "x.npy", "--verify")[0] == 0
    assert told == ["reading x.npy", "comparing with the model", "certifying", "verifying"]


def test_no_time_gives_a_gap(certified):
    code, _, said = certified("model.npz", "x.npy", "--time-limit", "0s")
    assert code == 0
    assert said.startswith(("within ", "optimal"))


def test_bad_input(certified):
    np.save("short.npy", table()[:-1])
    np.save("other.npy", table() + 1.0)
    Path("mine.csv").write_text("mine")
    for arguments, message in (
        (("model.npz", "short.npy"), "short.npy: 59 rows, but model.npz was fitted to 60"),
        (
            ("model.npz", "other.npy"),
            "other.npy: these are not the data that model.npz was fitted to",
        ),
        (("nothing.npz", "x.npy"), "nothing.npz: no such file"),
        (("model.npz", "nothing.npy"), "nothing.npy"),
        (("model.npz", "x.npy", "--labels", "x.npy"), "written as .csv or .parquet"),
        (("model.npz", "x.npy", "--labels", "mine.csv"), "mine.csv exists; use --force"),
    ):
        code, _, said = certified(*arguments)
        assert code == 1
        assert message in said
        assert said.count("\n") == 1


def test_the_estimator_certifies(tmp_path):
    model = DPMixture(GAUSSIAN, 1.0, certify=True, random_state=0).fit(table())
    assert model.clustering_.optimal
    assert model.clustering_.upper_bound == model.certificate_.upper_bound
    assert model.certificate_.verify()
    assert model.clustering_.trace[-1].step == "certify"
    again = certify(table(), model.labels_, GAUSSIAN, priors.DirichletProcess(1.0))
    assert again.lower_bound == pytest.approx(model.log_joint_)
    model.save(tmp_path / "m.npz")
    assert load(tmp_path / "m.npz").clustering_.optimal
    loose = DPMixture("full_gaussian", certify=0.1, random_state=0).fit(table())
    assert not loose.clustering_.optimal
    assert math.isfinite(loose.clustering_.upper_bound)
    assert loose.clustering_.upper_bound >= loose.log_joint_


def test_the_estimator_takes_a_better_partition_from_the_proof():
    X = np.random.default_rng(3).normal(size=(80, 2)) * 3.0
    plain = DPMixture(GAUSSIAN, 1.0, refine=False).fit(X)
    proved = DPMixture(GAUSSIAN, 1.0, refine=False, certify=20.0).fit(X)
    assert proved.log_joint_ > plain.log_joint_
    assert proved.clustering_.optimal
    assert len(np.unique(proved.labels_)) == proved.n_clusters_


def test_bad_parameters_of_the_estimator():
    with pytest.raises(ParameterError, match="certify must be True, False or a number"):
        DPMixture(certify="yes").fit(table())
    with pytest.raises(CapabilityError, match="certify needs a prior"):
        DPMixture(GAUSSIAN, priors.AntoniakCounts(1.0), certify=True).fit(table())


def test_a_certificate_is_written_and_checked_in_another_process(certified):
    code, _, said = certified("model.npz", "x.npy", "--out", "proof.npz")
    assert code == 0
    assert said.startswith("optimal: log joint ")
    done = subprocess.run(
        [sys.executable, "-m", "dpsearch.cli", "certify", "--check", "proof.npz", "x.npy"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    said = [line for line in done.stderr.splitlines() if "compiling" not in line]
    assert said[0].startswith("optimal: log joint ")
    assert done.stderr.endswith("\nverified\n")


def test_a_check_fails_for_other_rows_and_changed_files(certified, run):
    assert certified("model.npz", "x.npy", "--out", "proof.npz", "--quiet")[0] == 0
    assert json.loads(run("certify", "--check", "proof.npz", "x.npy", "--json")[1])["verified"]
    np.save("other.npy", table() + 1e-3)
    np.save("short.npy", table()[:-1])
    found = certify(table(), np.zeros(60), GAUSSIAN, priors.DirichletProcess(1.0))
    dataclasses.replace(found, upper_bound=found.lower_bound - 1.0).save("forged.npz")
    for arguments, message in (
        (("proof.npz", "other.npy"), "proof.npz: proves nothing about other.npy"),
        (("forged.npz", "x.npy"), "forged.npz: proves nothing about x.npy"),
        (("proof.npz", "short.npy"), "short.npy: 59 rows, but the certificate is about 60"),
        (("model.npz", "x.npy"), "model.npz: not a dpsearch certificate"),
        (("x.npy", "x.npy"), "x.npy: damaged, or not a dpsearch certificate"),
        (("proof.npz", "x.npy", "--out", "again.npz"), "leave out --out"),
    ):
        code, _, said = run("certify", "--check", *arguments)
        assert code == 1
        assert message in said
        assert said.count("\n") == 1
    code, _, said = certified("model.npz", "x.npy", "--out", "proof.npz")
    assert (code, "proof.npz exists; use --force" in said) == (1, True)
    code, out, _ = run("certify", "--check", "forged.npz", "x.npy", "--json")
    assert (code, json.loads(out)["verified"]) == (1, False)


def test_the_check_of_any_file_ends_with_one_line(certified, run):
    assert certified("model.npz", "x.npy", "--out", "proof.npz", "--quiet")[0] == 0
    with np.load("proof.npz") as entries:
        arrays = {name: entries[name] for name in entries.files if name != "about"}
        about = json.loads(bytes(entries["about"]))
    columns = about["columns"]
    changes = [
        *({name: value} for name in about for value in (None, [], "x", -1, 1e308, {})),
        *({"columns": {**columns, name: value}} for name in columns for value in (3, [1], "x", {})),
        *({"ranges": [{**about["ranges"][0], "low": value}]} for value in ("1", None, 2**70)),
    ]
    for change in changes:
        # Any tolerance and any time may be what they were.
        allowed = ({"tolerance": 1e308}, {"seconds": 1e308})
        if {**about, **change} == about or change in allowed:
            continue
        write_archive("changed.npz", {**about, **change}, arrays)
        code, out, said = run("certify", "--check", "changed.npz", "x.npy", "--json")
        harmless = "columns" in change and code == 0  # of a table of numbers, or other names
        assert harmless or code == 1, (change, code, said)
        assert harmless or (said.count("\n") == 1 and "a bug" not in said), (change, said)
        assert harmless or out in ("", '{"verified": false}\n')


def test_who_checks_says_what_counts_as_closed(run):
    """A certificate may state any tolerance, so the one who checks it sets their own."""
    X = table()
    np.save("x.npy", X)
    loose = families.DiagonalGaussian()
    found = certify(X, np.zeros(60), loose, priors.DirichletProcess(1.0), tolerance=1e6)
    assert found.optimal
    assert found.verify()
    found.save("proof.npz")
    code, _, said = run("certify", "--check", "proof.npz", "x.npy")
    assert (code, said.startswith("within ")) == (0, True)
    about = json.loads(run("certify", "--check", "proof.npz", "x.npy", "--json")[1])
    assert (about["verified"], about["optimal"]) == (True, False)
    assert about["gap"] == found.gap


def test_a_certificate_from_python_is_checked_by_the_command_line(run):
    found = certify(table(), np.zeros(60), GAUSSIAN, priors.DirichletProcess(1.0))
    found.save("proof.npz")
    np.save("x.npy", table())
    code, _, said = run("certify", "--check", "proof.npz", "x.npy", "--labels", "best.csv")
    assert (code, said.endswith("\nverified\n")) == (0, True)
    labels = np.loadtxt("best.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    np.testing.assert_array_equal(labels, found.clustering.labels)


def test_a_check_says_what_the_certificate_is_about(run):
    """A file may be about any columns and family, so the output must say which."""
    np.savetxt("x.csv", table(), delimiter=",", header="a,b", comments="")
    found = certify(table()[:, :1], np.zeros(60), GAUSSIAN, priors.DirichletProcess(7.5))
    columns = {"n_features": 1, "names": ["a"], "index": None, "schema": None}
    write_certificate("proof.npz", found, columns=columns)
    code, _, said = run("certify", "--check", "proof.npz", "x.csv")
    assert (code, said.endswith("verified\n")) == (0, True)
    assert "\nabout 60 rows of a\n" in said
    assert "alpha=7.5" in said
    about = json.loads(run("certify", "--check", "proof.npz", "x.csv", "--json")[1])
    assert (about["rows"], about["columns"], about["prior"]["alpha"]) == (60, ["a"], 7.5)


@pytest.mark.slow
def test_codes_of_missing_values_are_those_of_the_fit(run):
    """A valid certificate of a table with codes was not verified."""
    X = np.column_stack([table(), table()[:, 0]])
    X[::7, 1] = -9999.0
    np.save("x.npy", X)
    assert run("fit", "x.npy", "--quiet", "--refine", "no")[0] == 0
    assert run("certify", "x.clusters", "x.npy", "--time-limit", "0s", "--out", "p.npz")[0] == 0
    assert run("certify", "--check", "p.npz", "x.npy")[0] == 0


@pytest.mark.slow
def test_columns_and_gaps_are_read_as_they_were_certified(run):
    """The table has names, categories, a column of row names, and gaps that the fit completed."""
    rng = np.random.default_rng(0)
    lines = ["id,b,colour,a"]
    for i in range(60):
        place = i % 2
        cell = "" if i % 9 == 4 else f"{9.0 * place + rng.normal():.3f}"
        colour = ("red", "blue")[place]
        lines.append(f"row{i},{cell},{colour},{9.0 * place + rng.normal():.3f}")
    Path("t.csv").write_text("\n".join(lines) + "\n")
    assert run("fit", "t.csv", "--index", "id", "--quiet", "--refine", "no")[0] == 0
    assert run("certify", "t.clusters", "t.csv", "--time-limit", "0s", "--out", "p.npz")[0] == 0
    assert run("certify", "--check", "p.npz", "t.csv")[0] == 0
    # Columns in another order are the same data; another value is not.
    swapped = [",".join(np.array(line.split(","))[[3, 0, 2, 1]]) for line in lines]
    Path("swapped.csv").write_text("\n".join(swapped) + "\n")
    assert run("certify", "--check", "p.npz", "swapped.csv")[0] == 0
    Path("changed.csv").write_text("\n".join([*lines[:-1], "row59,1.0,red,2.0"]) + "\n")
    assert run("certify", "--check", "p.npz", "changed.csv")[0] == 1
    X = np.repeat([[0.0, 0.0], [9.0, -9.0]], 80, axis=0)
    X += rng.normal(size=X.shape) @ [[1.0, 0.9], [0.0, 0.4]]
    X[::9, 0] = np.nan
    np.save("gaps.npy", X)
    assert run("fit", "gaps.npy", "--refine", "no", "--quiet")[0] == 0
    assert load("gaps.clusters/model.npz").family_.name == "full_gaussian"
    arguments = ["gaps.clusters", "gaps.npy", "--time-limit", "0s", "--out", "g.npz"]
    assert run("certify", *arguments)[0] == 0
    assert run("certify", "--check", "g.npz", "gaps.npy")[0] == 0

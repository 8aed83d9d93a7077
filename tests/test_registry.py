"""Families and priors by name: registered, of installed packages, and what is refused."""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dpsearch import DPMixture, families, load, priors
from dpsearch.errors import ModelFileError, ParameterError
from outside import installed

BOTH = """
[dpsearch.families]
coins = outside_model:Coins

[dpsearch.priors]
finite_mixture = outside_model:FiniteMixture
"""
X = (np.random.default_rng(0).random((20, 3)) < 0.4).astype(float)


@dataclass(frozen=True)
class Mine(families.Poisson):
    name: ClassVar[str] = "mine"


@dataclass(frozen=True)
class Namesake(families.Bernoulli):
    name: ClassVar[str] = "poisson"


@dataclass(frozen=True)
class Unnamed(families.Poisson):
    name: ClassVar[str] = "two words"


class Plain:
    name = "plain"


def test_every_family_and_prior_has_its_name():
    assert all(families.by_name(name).name == name for name in families.names())
    assert all(priors.by_name(name).name == name for name in priors.names())
    with pytest.raises(ParameterError, match="no family 'gausian': did you mean 'gaussian'"):
        families.by_name("gausian", also=("auto",))
    with pytest.raises(ParameterError, match="no prior 'dirichlet'; there are antoniak_counts"):
        priors.by_name("dirichlet")
    for made_of_others in ("product", "with_gaps"):
        with pytest.raises(ParameterError, match=f"no family '{made_of_others}'"):
            families.by_name(made_of_others)


def test_a_registered_class_is_found_until_it_is_taken_back():
    with families.FAMILIES.knowing(Mine):
        assert families.by_name("mine") is Mine
        assert families.from_dict({"name": "mine", "rate": 2.0}) == Mine(rate=2.0)
        families.register(Mine)  # again, as a cell of a notebook does
    with pytest.raises(ParameterError, match="no family 'mine'"):
        families.by_name("mine")
    extra = {"mine": Mine}
    assert families.from_dict({"name": "mine", "rate": 2.0}, extra) == Mine(rate=2.0)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Namesake, "'poisson' of .*Namesake is that of the family dpsearch.*Poisson"),
        (Unnamed, "name of .*Unnamed must be an identifier, got 'two words'"),
        (Plain, "not a subclass of .*Family"),
        (families.Poisson(), "not a subclass"),
        (priors.PitmanYor, "not a subclass"),
    ],
)
def test_a_class_of_no_use_is_not_registered(cls, message):
    before = dict(families.FAMILIES.classes)
    with pytest.raises(ParameterError, match=message):
        families.register(cls)
    assert families.FAMILIES.classes == before


def test_an_outside_package_is_found_by_name(run, tmp_path):
    np.savetxt(tmp_path / "table.csv", X, delimiter=",", header="a,b,c", comments="")
    with installed(tmp_path, "outside_model", BOTH):
        assert "coins" in families.names()
        with pytest.raises(ParameterError, match="'cions': did you mean 'coins'"):
            DPMixture(family="cions").fit(X)
        assert "outside_model" not in sys.modules  # names are read, nothing is imported
        model = DPMixture(family="coins", alpha="finite_mixture").fit(X)
        assert model.family_.name == "coins"
        model.save(tmp_path / "model.npz")
        loaded = load(tmp_path / "model.npz")
        assert np.array_equal(loaded.labels_, model.labels_)
        assert (type(loaded.family_).__name__, loaded.alpha) == ("Coins", "finite_mixture")
        options = ("--family", "coins", "--alpha", "finite_mixture")
        code, _, err = run("fit", "table.csv", *options, "--out", "t.clusters", "--quiet")
        assert code == 0, err
        code, out, err = run("inspect", "t.clusters")
        assert code == 0, err
        assert "coins" in out
        assert "finite_mixture" in out
    with pytest.raises(ModelFileError, match="no family 'coins'"):
        load(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lost:Coins", "'coins' of the package lost .*cannot be imported: .*gone"),
        ("lost:Other", "'coins' of the package lost .*cannot be imported"),
        ("collections:OrderedDict", "not a subclass of"),
        ("dpsearch.families:Poisson", "calls itself 'poisson'"),
    ],
)
def test_a_broken_entry_point_says_whose_it_is(value, message, tmp_path):
    code = "raise ImportError('gone')" if value == "lost:Coins" else ""
    with installed(tmp_path, "lost", f"[dpsearch.families]\ncoins = {value}\n", code):
        assert "coins" in families.names()
        with pytest.raises(ParameterError, match=message):
            families.by_name("coins")


def test_two_packages_with_the_same_name_are_distinguished(tmp_path):
    for module in ("first", "second"):
        (tmp_path / module).mkdir()
    entry = "[dpsearch.families]\ncoins = {}:Coins\n"
    with (
        installed(tmp_path / "first", "first", entry.format("first")),
        installed(tmp_path / "second", "second", entry.format("second")),
        pytest.raises(ParameterError, match="'coins' is in the package \\w+ and the package"),
    ):
        families.by_name("coins")

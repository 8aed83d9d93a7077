"""A correct family and a correct prior, and copies of them with one bug each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln, digamma

from dpsearch import priors
from dpsearch.families import Example, Family, Functions, pointer
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated
from dpsearch.families.linear import LinearForm
from dpsearch.families.statistics import GammaCounts
from models import FiniteMixture

# Whole numbers x ≥ 0, geometric with a Beta(a, b) prior: a row is n and the sum of each column.


@pointer("update")
def _update(params, row, ids, values, weight):
    row[0] += weight
    for d in range(values.shape[0]):
        row[1 + d] += weight * values[d]


@pointer("merge")
def _merge(params, row, other, sign):
    for d in range(row.shape[0]):
        row[d] += sign * other[d]


@pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):
    a, b = params[1], params[2]
    for k in range(starts.shape[0]):
        n = pool[starts[k]]
        out[k] = params[3]
        for d in range(values.shape[0]):
            s, x = pool[starts[k] + 1 + d], values[d]
            out[k] += math.log(a + n) + math.lgamma(b + s + x) - math.lgamma(b + s)
            out[k] += math.lgamma(a + b + n + s) - math.lgamma(a + b + n + s + 1 + x)


@pointer("log_marginal")
def _log_marginal(params, row):
    a, b, n = params[1], params[2], row[0]
    out = n * params[3]
    for d in range(int(params[0])):
        s = row[1 + d]
        out += math.lgamma(a + n) + math.lgamma(b + s) - math.lgamma(a + b + n + s)
        out -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return out


@dataclass(frozen=True)
class Right(Family):
    """The family without a bug; `constant` is added to the log of every predictive."""

    a: float = 1.0
    b: float = 2.0

    name: ClassVar[str] = "planted"
    constant: ClassVar[float] = 0.0
    independent_columns: ClassVar[bool] = True
    functions: ClassVar[Functions] = Functions(_update, _merge, _score_rows, _log_marginal)

    def width(self, n_features):
        return 1 + n_features

    def parameters(self, n_features, X):
        return np.array([n_features, self.a, self.b, self.constant])

    def posterior(self, row, n_features):
        return {"success": (self.a + row[0]) / (self.a + self.b + row[0] + row[1:])}

    def draws(self, row, n_features):
        def sample(size, rng):
            p = rng.beta(self.a + row[0], self.b + row[1:], size=(size, n_features))
            return rng.geometric(p) - 1.0

        return PredictiveDraws(sample)

    def columns(self, row, n_features):
        a, b = self.a + row[0], self.b + row[1:]
        rows = [np.array([row[0], s]) for s in row[1:]]
        return Columns(betaln(a, b) - betaln(self.a, self.b), b / a, rows=rows)

    def log_ceiling(self, X):
        return np.zeros(len(X))

    def linear(self, n_features):
        a, b = self.a, self.b

        def log_marginals(n, sums):
            columns = betaln(a + n[:, None], b + sums) - betaln(a, b)
            return columns.sum(axis=1) + n * self.constant

        def weights(n, sums):
            whole = digamma(a + b + n[:, None] + sums)
            by_n = (digamma(a + n[:, None]) - whole).sum(axis=1)
            return digamma(b + sums) - whole, by_n + self.constant

        return LinearForm(
            n_features, lambda X: X, log_marginals, weights, lambda *both: np.column_stack(both)
        )

    @classmethod
    def examples(cls):
        X = np.random.default_rng(0).geometric(0.4, size=(12, 2)) - 1.0
        return [Example(cls(), X)]


RIGHT = Right.functions
BROKEN_FAMILIES: dict[str, list[type[Family]]] = {}


def caught_by(law: str) -> Any:
    """Declare the law that catches the bug of a class."""

    def note(cls):
        cls = dataclass(frozen=True)(cls)
        BROKEN_FAMILIES.setdefault(law, []).append(cls)
        return cls

    return note


@pointer("log_marginal")
def _marginal_of_one_column(params, row):
    a, b, n, s = params[1], params[2], row[0], row[1]
    out = math.lgamma(a + n) + math.lgamma(b + s) - math.lgamma(a + b + n + s)
    return out - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b)


@caught_by("chain_rule")
class WrongMarginal(Right):
    functions = replace(RIGHT, log_marginal=_marginal_of_one_column)


@pointer("update")
def _update_by_halves(params, row, ids, values, weight):
    row[0] += weight
    for d in range(values.shape[0]):
        row[1 + d] = 0.5 * row[1 + d] + weight * values[d]


@pointer("score_rows")
def _score_by_marginals(params, pool, starts, ids, values, out):
    a, b = params[1], params[2]
    for k in range(starts.shape[0]):
        n = pool[starts[k]]
        out[k] = 0.0
        for d in range(values.shape[0]):
            s = pool[starts[k] + 1 + d]
            after = 0.5 * s + values[d]
            out[k] += math.lgamma(a + n + 1) + math.lgamma(b + after)
            out[k] -= math.lgamma(a + b + n + 1 + after)
            out[k] -= math.lgamma(a + n) + math.lgamma(b + s) - math.lgamma(a + b + n + s)


@caught_by("exchangeable")
class DependsOnOrder(Right):
    """The chain rule holds, but the log marginal depends on the order of the points."""

    functions = replace(RIGHT, update=_update_by_halves, score_rows=_score_by_marginals)


@pointer("merge")
def _merge_from_one(params, row, other, sign):
    for d in range(row.shape[0]):
        row[d] += sign * other[d]
    if sign == 0.0:
        row[0] = 1.0


@caught_by("chain_rule")
class NotEmptyAtFirst(Right):
    functions = replace(RIGHT, merge=_merge_from_one)


@pointer("update")
def _update_never_less(params, row, ids, values, weight):
    row[0] += weight
    for d in range(values.shape[0]):
        row[1 + d] += max(weight, 0.0) * values[d]


@caught_by("remove_undoes_add")
class NeverForgets(Right):
    functions = replace(RIGHT, update=_update_never_less)


@pointer("merge")
def _merge_sizes(params, row, other, sign):
    row[0] += sign * other[0]


@caught_by("emptied_is_empty")
class MergesSizesAlone(Right):
    functions = replace(RIGHT, merge=_merge_sizes)


@pointer("merge")
def _merge_twice(params, row, other, sign):
    for d in range(row.shape[0]):
        row[d] += sign * other[d] * (2.0 if sign > 0.0 else 1.0)


@caught_by("merge_is_adding")
class WrongMerge(Right):
    functions = replace(RIGHT, merge=_merge_twice)


@pointer("update")
def _update_once(params, row, ids, values, weight):
    sign = 1.0 if weight > 0.0 else -1.0
    row[0] += sign
    for d in range(values.shape[0]):
        row[1 + d] += sign * values[d]


@caught_by("weight_is_copies")
class IgnoresWeights(Right):
    functions = replace(RIGHT, update=_update_once)


@pointer("score_rows")
def _score_the_first(params, pool, starts, ids, values, out):
    a, b, n = params[1], params[2], pool[starts[0]]
    out[:] = 0.0
    for d in range(values.shape[0]):
        s, x = pool[starts[0] + 1 + d], values[d]
        out[0] += math.log(a + n) + math.lgamma(b + s + x) - math.lgamma(b + s)
        out[0] += math.lgamma(a + b + n + s) - math.lgamma(a + b + n + s + 1 + x)


@caught_by("scores_agree")
class ScoresTheFirstAlone(Right):
    functions = replace(RIGHT, score_rows=_score_the_first)


@pointer("score_member")
def _score_member_with_itself(params, row, ids, values):
    out = 0.0
    for d in range(values.shape[0]):
        out += math.log(params[1] + row[0]) - math.log(params[1] + params[2] + row[0] + row[1 + d])
    return out


@caught_by("scores_agree")
class WrongMember(Right):
    functions = replace(RIGHT, score_member=_score_member_with_itself)


@pointer("score_best")
def _leave_all_out(params, pool, starts, offsets, skipped, ids, values, out):
    for k in range(starts.shape[0]):
        out[k] = -np.inf


@caught_by("scores_agree")
class LeavesTheBestOut(Right):
    functions = replace(RIGHT, score_best=_leave_all_out)


@caught_by("larger_than_its_tables")
class DependsOnTheFirstData(Right):
    def parameters(self, n_features, X):
        return np.array([n_features, self.a, self.b + 0.01 * X.shape[0], self.constant])


@pointer("features")
def _features(params, ids, values, out):
    for d in range(values.shape[0]):
        out[d] = values[d]


@pointer("bound")
def _bound_without_helpers(params, row, helpers, low, high, ids, values):
    a, b, n = params[1], params[2], row[0]
    out = 0.0
    for d in range(values.shape[0]):
        s, x = row[1 + d], values[d]
        out += math.log(a + n) + math.lgamma(b + s + x) - math.lgamma(b + s)
        out += math.lgamma(a + b + n + s) - math.lgamma(a + b + n + s + 1 + x)
    return out


@caught_by("bounds_are_above")
class BoundTooLow(Right):
    functions = replace(RIGHT, features=_features, bound=_bound_without_helpers)


@caught_by("ceiling_is_above")
class CeilingTooLow(Right):
    def log_ceiling(self, X):
        return np.full(len(X), -1.0)


@caught_by("statistic_agrees")
class WrongClosedForm(Right):
    def statistic(self, X):
        ones = np.ones(X.shape[1])
        return GammaCounts(X, self.a * ones, self.b * ones)


def _changed(family, n_features, **changes):
    """Return the correct linear form with one function changed."""
    return replace(Right.linear(family, n_features), **changes)


@caught_by("totals_give_rows")
class WrongRowsOfTotals(Right):
    def linear(self, n_features):
        return _changed(self, n_features, rows=lambda n, sums: np.column_stack([n, sums - 1.0]))


@caught_by("totals_give_log_marginals")
class TotalsWithoutThePrior(Right):
    def linear(self, n_features):
        return _changed(
            self,
            n_features,
            log_marginals=lambda n, sums: betaln(self.a + n[:, None], self.b + sums).sum(axis=1),
        )


@caught_by("weights_are_the_gradient")
class WrongSignOfTheGradient(Right):
    def linear(self, n_features):
        def weights(n, sums):
            by_sums, by_n = Right.linear(self, n_features).weights(n, sums)
            return by_sums, -by_n

        return _changed(self, n_features, weights=weights)


@caught_by("log_marginals_are_convex")
class NotConvexBetweenBlocks(Right):
    def linear(self, n_features):
        def log_marginals(n, sums):
            bumps = 10.0 * np.sin(math.pi * n) ** 2  # 0 and flat at whole sizes
            return bumps + Right.linear(self, n_features).log_marginals(n, sums)

        return _changed(self, n_features, log_marginals=log_marginals)


@caught_by("features_by_the_array_api")
class FeaturesOfNumPyAlone(Right):
    def linear(self, n_features):
        return _changed(self, n_features, features=lambda X: X[:, list(range(n_features))])


@caught_by("rows_are_encoded_alone")
class EncodesByOtherRows(Right):
    def encode(self, X):
        return X + 0.1 * X.shape[0]


@pointer("log_marginal")
def _marginal_of_all_columns(params, row):
    a, b, n = params[1], params[2], row[0]
    s = 0.0
    for d in range(int(params[0])):
        s += row[1 + d]
    out = math.lgamma(a + n) + math.lgamma(b + s) - math.lgamma(a + b + n + s)
    return out - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b)


@pointer("score_rows")
def _score_all_columns(params, pool, starts, ids, values, out):
    a, b = params[1], params[2]
    for k in range(starts.shape[0]):
        n, s, x = pool[starts[k]], 0.0, 0.0
        for d in range(values.shape[0]):
            s += pool[starts[k] + 1 + d]
            x += values[d]
        out[k] = math.log(a + n) + math.lgamma(b + s + x) - math.lgamma(b + s)
        out[k] += math.lgamma(a + b + n + s) - math.lgamma(a + b + n + s + 1 + x)


@caught_by("gaps_are_skipped")
class NotIndependent(Right):
    functions = replace(RIGHT, score_rows=_score_all_columns, log_marginal=_marginal_of_all_columns)

    def columns(self, row, n_features):
        return None


@caught_by("restated_is_counted_again")
class ForgetsWhenRestated(Right):
    def restated(self, row, n_features, other):
        return Restated(np.append(row[:1], 0.9 * row[1:]))


@caught_by("restated_is_counted_again")
class ForgetsTheJacobian(Right):
    """Learning changes the unit of the density."""

    def log_base(self, X):
        return np.full(len(X), -math.log(self.a))

    def learned(self, X, labels):
        return replace(self, a=2.0 * self.a)

    def restated(self, row, n_features, other):
        return Restated(row)


@caught_by("description_comes_back")
class LosesAParameter(Right):
    def to_dict(self):
        return {"name": self.name, "a": self.a}

    @classmethod
    def examples(cls):
        return [Example(cls(1.5, 0.5), Right.examples()[0].X)]


@caught_by("posterior_is_readable")
class SaysMoreOfMany(Right):
    def posterior(self, row, n_features):
        return {"success": 0.5} | ({"many": row[0]} if row[0] > 1.0 else {})


@caught_by("draws_follow_the_predictive")
class DrawsTooLarge(Right):
    def draws(self, row, n_features):
        right = super().draws(row, n_features)
        return PredictiveDraws(lambda size, rng: right.sample(size, rng) + 1.0)


@caught_by("draws_follow_the_predictive")
class ForgetsTheLengths(Right):
    def lengths(self, X):
        return X[:, :1]


@caught_by("columns_agree")
class WrongColumns(Right):
    def columns(self, row, n_features):
        return super().columns(row, n_features)._replace(log_marginals=row[1:])


@caught_by("gaps_are_predicted")
class WrongColumnRows(Right):
    def columns(self, row, n_features):
        rows = [np.array([row[0], 0.0]) for _ in row[1:]]
        return super().columns(row, n_features)._replace(rows=rows)


@caught_by("predictive_is_normalised")
class WrongConstant(Right):
    independent_columns = False
    constant: ClassVar[float] = 0.1


@caught_by("predictive_is_normalised")
class WrongBase(Right):
    independent_columns = False

    def log_base(self, X):
        return np.full(len(X), -0.1)


@caught_by("learns")
class LearnsAnother(Right):
    @classmethod
    def suggest(cls, X):
        return Right()


@caught_by("has_a_name_of_its_own")
class Namesake(Right):
    name: ClassVar[str] = "poisson"


# -- priors ----------------------------------------------------------------------------------------


BROKEN_PRIORS: dict[str, list[type[priors.Prior]]] = {}


def prior_caught_by(law: str) -> Any:
    def note(cls):
        BROKEN_PRIORS.setdefault(law, []).append(dataclass(frozen=True)(cls))
        return cls

    return note


@prior_caught_by("tables_are_finite")
class TableTooLong(FiniteMixture):
    def log_v(self, n_points, most_clusters=None):
        return super().log_v(n_points + 1, most_clusters)


@prior_caught_by("tables_are_finite")
class WeighsNothing(FiniteMixture):
    def log_w(self, sizes):
        return super().log_w(sizes) + 1.0


@prior_caught_by("sums_to_one")
class WrongSum(FiniteMixture):
    def log_w(self, sizes):
        return super().log_w(sizes) * 1.1


@prior_caught_by("one_point_more")
class UniformOverPartitions(priors.Prior):
    """All partitions of n points are equally probable, which is not consistent over n."""

    name: ClassVar[str] = "uniform"
    consistent: ClassVar[bool] = True

    def log_v(self, n_points, most_clusters=None):
        bell = [1.0]
        for n in range(min(n_points, 8)):
            bell.append(sum(math.comb(n, k) * bell[k] for k in range(n + 1)))
        out = np.full(
            (n_points if most_clusters is None else most_clusters) + 1, -math.log(bell[-1])
        )
        out[0] = 0.0
        return out

    def log_w(self, sizes):
        return np.zeros(len(sizes))


@prior_caught_by("probability_is_the_product")
class AnotherProbability(FiniteMixture):
    """It also adds up to 1: two shapes with equally many partitions are swapped."""

    def log_probability(self, sizes):
        swapped = {(1, 1, 4): (2, 4), (2, 4): (1, 1, 4)}
        return super().log_probability(swapped.get(tuple(sizes), sizes))


@prior_caught_by("completion_is_the_best")
class CompletesTooLow(FiniteMixture):
    def best_completion(self, sizes, remaining):
        return super().best_completion(sizes, remaining) - 0.1


@prior_caught_by("sizes_beyond_the_table")
class WrongDiscount(priors.PitmanYor):
    name: ClassVar[str] = "wrong_discount"

    def size_discount(self):
        return 0.5


@prior_caught_by("description_comes_back")
class ForgetsItsWeight(FiniteMixture):
    def to_dict(self):
        return {"name": self.name, "more": self.more + 1.0}


@prior_caught_by("has_a_name_of_its_own")
class NamedAsAnother(FiniteMixture):
    name: ClassVar[str] = "pitman_yor"

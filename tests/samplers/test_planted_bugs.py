"""The checks of the samplers fail when the samplers are wrong."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln

import dpsearch
import posterior_harness as harness
from models import PRODUCT_PRIORS
from posterior_harness import SAMPLERS, check_geweke, check_visits

pytestmark = pytest.mark.slow

# Bugs to plant in a copy of pair_moves.py; number b is on where `scans` is 100·b and more.
BUGS = {
    "the Hastings factor is left out": 1,
    "a merge is launched from the present division": 2,
    "all scans are counted, not the last": 3,
}
EDITS = [
    ("< gain - log_q:", "< gain - (0.0 if scans // 100 == 1 else log_q):"),
    ("< log_q - loss:", "< (0.0 if scans // 100 == 1 else log_q) - loss:"),
    (
        "        targets[m] = side[m] if forced else -1\n        side[m] = rng.random() < 0.5\n",
        "        targets[m] = side[m] if forced else -1\n"
        "        if not (forced and bug == 2):\n            side[m] = rng.random() < 0.5\n",
    ),
    (
        "    for scan in range(scans + 1):\n        log_q = 0.0\n",
        "    for scan in range(scans + 1):\n        log_q = log_q if bug == 3 else 0.0\n",
    ),
    (
        "    n = members.shape[0]\n    if rule == RANDOM:",
        "    bug = scans // 100\n    scans = scans % 100\n"
        "    n = members.shape[0]\n    if rule == RANDOM:",
    ),
]
SPLIT_MERGE = ["split-merge 1", "split-merge 2", "split-merge 3", "sams"]
CAUGHT = [  # bug, sampler, whether also by Geweke's test
    ("the Hastings factor is left out", "split-merge 1", True),
    ("the Hastings factor is left out", "split-merge 2", True),
    ("the Hastings factor is left out", "sams", True),
    ("all scans are counted, not the last", "split-merge 2", True),
    # Milder ones, or with a Gibbs sweep that makes good for them: 600 iterations are too few
    # for Geweke's test.
    ("the Hastings factor is left out", "split-merge 3", False),
    ("all scans are counted, not the last", "split-merge 3", False),
    ("a merge is launched from the present division", "split-merge 2", False),
]
SCRIPT = """
import json, sys
from dataclasses import replace
import posterior_harness as harness
from dpsearch.samplers import SplitMerge
from models import PRODUCT_PRIORS
out = {}
for bug, sampler, by_geweke in json.loads(sys.argv[1]):
    moves = [
        replace(move, scans=move.scans + 100 * bug) if isinstance(move, SplitMerge) else move
        for move in harness.SAMPLERS[sampler]
    ]
    out[f"{bug} {sampler}"] = []
    for prior in (0, 2):
        problem, posterior = harness.small_problem("poisson", prior, 6)
        passed = list(harness.check_visits(problem, posterior, moves, seed=prior))
        if by_geweke:
            small, _ = harness.small_problem("poisson", prior, 4)
            one = harness.one_sweep(moves)
            passed.append(harness.check_geweke(small, PRODUCT_PRIORS[prior], one, 1))
        out[f"{bug} {sampler}"].append(passed)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def passed_with_bugs(tmp_path_factory):
    """Return for each bug and sampler which checks pass, in a compiled copy of the package."""
    folder = tmp_path_factory.mktemp("planted")
    source = Path(dpsearch.__file__).parent
    shutil.copytree(source, folder / "dpsearch", ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "dpsearch" / "samplers" / "pair_moves.py"
    text = target.read_text(encoding="utf-8")
    for old, new in EDITS:
        assert text.count(old) == 1
        text = text.replace(old, new)
    target.write_text(text, encoding="utf-8")
    cases = [(0, sampler, True) for sampler in SPLIT_MERGE]
    cases += [(BUGS[bug], sampler, by_geweke) for bug, sampler, by_geweke in CAUGHT]
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[1] / "support")])
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(cases)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_copy_without_a_bug_passes(passed_with_bugs):
    for sampler in SPLIT_MERGE:
        assert np.array(passed_with_bugs[f"0 {sampler}"]).all()


@pytest.mark.parametrize(("bug", "sampler", "by_geweke"), CAUGHT)
def test_the_checks_catch_planted_bugs(passed_with_bugs, bug, sampler, by_geweke):
    """The checks that samplers pass, with the same seeds, fail for each bug on some problem."""
    passed = np.array(passed_with_bugs[f"{BUGS[bug]} {sampler}"]).all(axis=0)
    assert passed.tolist() == [False] * (3 if by_geweke else 2)


@pytest.mark.parametrize(
    "sampler", ["gibbs", "gibbs, random scan", "metropolis", "metropolis 7", "split-merge 3"]
)
def test_the_checks_catch_a_cluster_weighed_with_the_item_in_it(sampler):
    """The bug uses n for n − 1: a Chinese restaurant process that counts a guest twice."""

    def spoiled(problem):
        out = copy.copy(problem)
        sizes = np.arange(problem.n_points + 1)
        out.tables = problem.tables._replace(log_w=gammaln(sizes + 1.0))
        return out

    problem, posterior = harness.small_problem("poisson", 0, 5)
    moves = SAMPLERS[sampler]
    assert check_visits(spoiled(problem), posterior, moves, seed=0) == (False, False)
    small, _ = harness.small_problem("poisson", 0, 4)
    one = harness.one_sweep(moves)
    assert not check_geweke(
        small, PRODUCT_PRIORS[0], lambda p, c, rng: one(spoiled(p), c, rng), seed=1
    )

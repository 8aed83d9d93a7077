"""Samplers: draws from the posterior over partitions, by default started where search ends."""

from dpsearch.samplers.concentration import (
    AlphaChoice,
    AlphaProfile,
    alpha_profile,
    select_alpha,
)
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.gibbs import gibbs
from dpsearch.samplers.split_merge import split_merge

__all__ = [
    "AlphaChoice",
    "AlphaProfile",
    "Draws",
    "alpha_profile",
    "gibbs",
    "select_alpha",
    "split_merge",
]

"""Samplers: draws from the posterior over partitions, by default starting from a search result."""

from dpsearch.samplers.concentration import AlphaChoice, AlphaProfile, alpha_profile, select_alpha
from dpsearch.samplers.draws import Draws
from dpsearch.samplers.hyperparameters import HyperparameterUpdate
from dpsearch.samplers.moves import AlphaUpdate, GibbsSweep, MetropolisSweep, Move, SplitMerge
from dpsearch.samplers.options import RunOptions
from dpsearch.samplers.particles import Particles, particle_filter
from dpsearch.samplers.run import gibbs, metropolis, sample, split_merge

__all__ = [
    "AlphaChoice",
    "AlphaProfile",
    "AlphaUpdate",
    "Draws",
    "GibbsSweep",
    "HyperparameterUpdate",
    "MetropolisSweep",
    "Move",
    "Particles",
    "RunOptions",
    "SplitMerge",
    "alpha_profile",
    "gibbs",
    "metropolis",
    "particle_filter",
    "sample",
    "select_alpha",
    "split_merge",
]

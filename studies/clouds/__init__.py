"""Clouds that are not Gaussian, and mixtures of them, under the automatic choice."""

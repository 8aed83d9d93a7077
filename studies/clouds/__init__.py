"""Clouds that are not Gaussian, and mixtures of them: what `auto` makes of them."""

"""Simulation-based calibration (Talts, Betancourt, Simpson, Vehtari & Gelman 2018).

Draw α, a partition, its parameters and data from the model itself, sample the posterior, and rank
what was drawn among the draws.  If everything is right, the ranks are uniform.
"""

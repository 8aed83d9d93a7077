"""Attacks on what dpsearch promises: each counts what was tried and what failed."""

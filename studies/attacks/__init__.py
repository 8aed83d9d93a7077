"""Attacks on what dpsearch promises: kills, full disks, rivals, interrupts, hostile input.

Each file has functions of a count and a seed that return an `Outcome`; `python -m studies attacks`
finds them, runs them and writes their counts into docs/reliability.md.
"""

"""Exact methods: upper bounds on every partition, and proofs that one is best."""

from dpsearch.exact.certificate import Certificate, Closing, certify, certify_problem

__all__ = ["Certificate", "Closing", "certify", "certify_problem"]

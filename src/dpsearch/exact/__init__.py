"""Exact methods: upper bounds on every partition, and proofs that one is best."""

from dpsearch.exact.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]

"""Exact methods: upper bounds on every partition, and proofs that one is best."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsearch.exact.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]


def __getattr__(name: str) -> Any:
    """Import the solver at first use, as `prefix_search` needs other parts of this folder only."""
    if name not in __all__:
        raise AttributeError(f"module 'dpsearch.exact' has no attribute {name!r}")
    from dpsearch.exact import certificate

    return getattr(certificate, name)

"""Tables of PyPI packages, unchanged, through `dpsearch fit`."""

"""Tables of PyPI packages, whole and untouched, through `dpsearch fit`."""

"""Studies beside the package: the paper's experiments, and dpsearch against other tools.

They are not installed with dpsearch.  From the root of the repository:

    python -m studies reproduce all --data FOLDER --out docs/reproduction
    python -m studies peers --data FOLDER --out docs/benchmarks
    python -m studies unlisted --out docs/benchmarks/unlisted.md
"""

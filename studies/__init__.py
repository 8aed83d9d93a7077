"""Studies: the paper's experiments, dpsearch against other tools, and attacks.

They are not installed with dpsearch.  From the root of the repository:

    python -m studies reproduce all --data FOLDER --out docs/reproduction
    python -m studies related --data FOLDER --out docs/benchmarks
    python -m studies peers --data FOLDER --out docs/benchmarks
    python -m studies unlisted --out docs/benchmarks/unlisted.md
    python -m studies attacks --count 300 --out docs/reliability.md
"""

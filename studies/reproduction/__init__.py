"""The experiments of the paper's section 4, each by one command: `python -m studies reproduce`."""

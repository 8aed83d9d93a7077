"""The experiments of the paper's section 4: `python -m studies reproduce`."""

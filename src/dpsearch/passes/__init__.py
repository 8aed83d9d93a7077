"""One engine for every size: rows stay where they are, statistics travel.

``chunk``   what a pass does with one chunk of rows
``rows``    the passes over all rows; rows that threads of this process read
``device``  rows on a GPU, or wherever an array is: `open_rows`
``search``  the batch search on top of the passes
"""

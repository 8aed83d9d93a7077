"""One engine for every size: rows stay where they are, statistics travel.

``chunk``      what a pass does with one chunk of rows
``rows``       the passes over all rows; rows that threads of this process read
``dask_rows``  rows on the workers of a Dask cluster
``device``     rows on a GPU, or wherever an array is: `open_rows`
``search``     the batch search on top of the passes, by ``moves``; ``history`` its events and clock
``piloted``    the same where every pass is dear: proposals are worked out on a sample
``memory``     the first partition of many rows in memory
``fit``        the fit of a table in shards; ``checkpoint`` where one that was cut off goes on
``device_fit`` the fit of many rows on a device, from a sample
``stream``     one batch after another, endlessly: `partial_fit`
"""

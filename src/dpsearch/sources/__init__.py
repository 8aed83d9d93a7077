"""`open_table`: any table for the time of a fit, in memory or in shards that are loaded on demand.

``shards``      what a shard is, the first pass over it, and how a table is divided; arrays
``pieces``      shards of files; ``files`` finds them for paths, ``batches`` writes them for batches
``dask_tables`` shards of Dask's arrays and frames, and the cluster that holds them
``opened``      the context manager that opens any of these for a fit
"""

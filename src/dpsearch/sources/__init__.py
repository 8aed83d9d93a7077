"""`open_table`: any table for the time of a fit, in memory or in shards that are loaded at need.

``shards``      what a shard is, a first look at it, and how a table is divided; arrays
``pieces``      shards of files; ``files`` of paths, ``batches`` of what comes in batches
``dask_tables`` shards of Dask's arrays and frames, and the cluster that has them
``opened``      all of that for as long as a fit takes
"""

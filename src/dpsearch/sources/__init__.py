"""`open_table`: any table for the time of a fit, in memory or in shards that are loaded at need.

``shards``      what a shard is, and a first look at it; arrays and memory maps
``pieces``      shards of files; ``files`` of paths, ``batches`` of what comes in batches
``survey``      what the columns of a table hold that is not in memory
``dask_tables`` shards of Dask's arrays and frames; ``dask_client`` the cluster that has them
``options``     how a table is divided
``opened``      all of that for as long as a fit takes
"""

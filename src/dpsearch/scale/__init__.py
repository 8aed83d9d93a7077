"""Past one core, past memory, past one machine: one scheme at every scale.

The rows come in shards.  In each round every shard, on its own and given the clusters of all,
places its rows, splits what should be split, and hands up its clusters as rows of statistics;
these are items, which are searched and merged in one place; the clusters that come of it go back
down.  Rounds repeat while the log joint rises, which is exact after every round.

``source``     where shards come from: arrays, memory maps, files, batches
``shard``      what is done with one shard in one round
``rounds``     the loop, and the items' part
``workers``    who does it: threads of this process
``cluster``    who does it: the workers of a Dask cluster
``dask_tables`` shards of Dask's arrays and frames
``checkpoint`` where a fit that was cut off goes on
``stream``     one shard after another, endlessly: `partial_fit`
"""

"""Who reads the ranks' traces: this process, others on this machine, or a dask cluster, behind one interface."""

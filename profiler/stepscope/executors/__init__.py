"""Who reads the ranks' traces: this process, others on this machine, or a dask cluster, behind one interface."""

LOCAL = "local"
"""The engine that reads on this machine, in as many processes as pay."""

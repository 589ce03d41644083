"""Reports made from the result of an audit: each renders it to a stream and reads nothing else."""

"""Training scripts to measure: ordinary PyTorch code that knows nothing of the profiler."""

"""Speed and memory against peers; `python -m benchmarks --help`. Prints figures and ratios, asserts none."""

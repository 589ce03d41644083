"""Speed and memory against peers (`python -m benchmarks --help`), studies of accuracy, and what fills the gallery."""

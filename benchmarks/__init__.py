"""Speed and memory against peers and against the floor; `make bench` runs them."""

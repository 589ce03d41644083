"""What the columns of a trace say about a training step: overlap, floor, verdict."""

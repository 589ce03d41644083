"""Two audits beside each other: what changed, and whether the steps can tell it from noise."""

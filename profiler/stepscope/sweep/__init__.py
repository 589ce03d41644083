"""Candidates compared by measurement: which runs to make, in which order, and what their times say. Pure, but for one file."""

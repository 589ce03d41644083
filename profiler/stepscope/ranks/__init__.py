"""Ranks laid side by side: the same collective on all of them, waiting told from transfer, clocks, stragglers."""

"""One measured step as a dependency graph: what it would have taken, had something been otherwise (METRICS section 6)."""

"""Training scripts like a user's own, to record and to audit."""

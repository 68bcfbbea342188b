"""Training: terms become weights."""

"""Runs: a run directory, written and read."""

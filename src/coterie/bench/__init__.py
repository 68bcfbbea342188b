"""Measure what a step costs, as ratios of one run; check that this machine computes it right (doctor)."""

"""Measure what a step costs; speeds are ratios of one run."""

"""Metrics: logits become numbers."""

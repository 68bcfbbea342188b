"""Turn logits into numbers."""

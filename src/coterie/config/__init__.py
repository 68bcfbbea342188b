"""Turn options into a recipe."""

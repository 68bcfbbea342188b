"""Turn loss terms into weights."""

"""Configuration: options become a recipe."""

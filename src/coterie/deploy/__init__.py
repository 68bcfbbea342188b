"""Turn weights into a product."""

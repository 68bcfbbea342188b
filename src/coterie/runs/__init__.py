"""Write and read run directories."""

"""Turn numbers into tables and pictures."""

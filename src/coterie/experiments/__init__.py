"""Train many runs side by side."""

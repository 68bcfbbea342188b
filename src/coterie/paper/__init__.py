"""Fill the paper's tables and figures, and the study."""

"""The paper's tables and figures, and the study, filled again."""

"""The paper's tables and figures as data, the runner that fills them, and the statistics beside them."""

"""`coterie bench`: what a step costs on this machine, beside what it should cost. Speeds are ratios of one run."""

"""The paper's figures and tables, run again: see `kernsift.experiments.reproduce`."""

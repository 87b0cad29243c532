"""Effect sizes and their confidence intervals."""

"""Distributions that SciPy lacks, and root finding for many functions at once."""

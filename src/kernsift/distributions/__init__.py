"""Distributions that SciPy lacks."""

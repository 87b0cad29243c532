"""The conditional test: features and a response, given confounders."""

"""Columns: what they hold, how cells become numbers, and which of them make up a feature."""

"""Rows: samples, strata, pairs, units and columns that describe rows."""

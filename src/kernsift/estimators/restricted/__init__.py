"""The complete estimator where rows are exchangeable only within strata, in pairs or as units."""

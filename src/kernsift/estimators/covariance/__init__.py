"""The covariance of the scores of the complete estimator, and how they move together."""

"""The law of a statistic under the null hypothesis: by moments, by enumeration, and Student's."""

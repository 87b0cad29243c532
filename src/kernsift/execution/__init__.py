"""Execution: threads, Dask workers, array libraries, compiled functions, memory limits, progress. No statistics."""

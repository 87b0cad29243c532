"""Kernels: functions, bandwidths, columns quantised to few points, and low-rank factors of Gram matrices."""

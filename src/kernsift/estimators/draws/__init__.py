"""Draws of MMD and HSIC kernels over random designs, and their moments."""

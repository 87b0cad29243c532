"""MMD and HSIC, one estimator a file: tables and fitted kernels in, `Scores` out."""

from kernsift.statistics.block import block_hsic, block_mmd
from kernsift.statistics.complete import complete_hsic, complete_mmd
from kernsift.statistics.incomplete import incomplete_hsic, incomplete_mmd
from kernsift.statistics.linear import linear_mmd
from kernsift.statistics.ustatistic import hsic_ustat, mmd_ustat

MMD = {"complete": complete_mmd, "incomplete": incomplete_mmd, "block": block_mmd, "linear": linear_mmd}
HSIC = {"complete": complete_hsic, "incomplete": incomplete_hsic, "block": block_hsic}

__all__ = [
    "HSIC",
    "MMD",
    "block_hsic",
    "block_mmd",
    "complete_hsic",
    "complete_mmd",
    "hsic_ustat",
    "incomplete_hsic",
    "incomplete_mmd",
    "linear_mmd",
    "mmd_ustat",
]

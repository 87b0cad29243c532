"""MMD and HSIC, one estimator a file: tables and fitted kernels in, `Scores` out."""

from collections.abc import Callable, Mapping

from kernsift.estimators.block import block_hsic, block_mmd
from kernsift.estimators.complete import complete_hsic, complete_mmd
from kernsift.estimators.cross import cross_hsic, cross_mmd
from kernsift.estimators.incomplete import incomplete_hsic, incomplete_mmd
from kernsift.estimators.linear import linear_mmd
from kernsift.estimators.scores import Scores
from kernsift.estimators.screening import complete_screen, cross_screen, screened_by
from kernsift.estimators.ustatistic import hsic_ustat, mmd_ustat

MMD: Mapping[str, Callable[..., Scores]] = {
    "complete": complete_mmd,
    "cross": cross_mmd,
    "incomplete": incomplete_mmd,
    "block": block_mmd,
    "linear": linear_mmd,
}
HSIC: Mapping[str, Callable[..., Scores]] = {
    "complete": complete_hsic,
    "cross": cross_hsic,
    "incomplete": incomplete_hsic,
    "block": block_hsic,
}
SCREEN: Mapping[str, Callable[..., Scores]] = {
    "complete": complete_screen,
    "cross": cross_screen,
    "incomplete": screened_by(incomplete_mmd),
    "block": screened_by(block_mmd),
    "linear": screened_by(linear_mmd),
}

__all__ = [
    "HSIC",
    "MMD",
    "SCREEN",
    "block_hsic",
    "block_mmd",
    "complete_hsic",
    "complete_mmd",
    "cross_hsic",
    "cross_mmd",
    "hsic_ustat",
    "incomplete_hsic",
    "incomplete_mmd",
    "linear_mmd",
    "mmd_ustat",
]

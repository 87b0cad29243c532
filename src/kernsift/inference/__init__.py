"""The tests, one a file, with one signature: `test(scores, rule, selected, *, rng) -> Outcome`."""

from kernsift.inference.exact import exact
from kernsift.inference.multiscale import multiscale
from kernsift.inference.naive import naive
from kernsift.inference.outcome import Outcome, log_tail
from kernsift.inference.polyhedral import polyhedral
from kernsift.inference.regions import RegionTest

TESTS = {"exact": exact, "multiscale": multiscale, "polyhedral": polyhedral, "naive": naive}

__all__ = [
    "TESTS",
    "Outcome",
    "RegionTest",
    "exact",
    "log_tail",
    "multiscale",
    "naive",
    "polyhedral",
]

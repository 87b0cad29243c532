"""Which features changed, and which matter: kernel tests that stay valid after selection."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kernsift.inference import selective_bootstrap
from kernsift.result import Result
from kernsift.select import compare, relate, screen, topk_pvalues
from kernsift.tables import InputError

if TYPE_CHECKING:
    from kernsift.selectors import SelectHSIC, SelectMMD

__version__ = version("kernsift")

__all__ = [
    "InputError",
    "Result",
    "SelectHSIC",
    "SelectMMD",
    "compare",
    "relate",
    "screen",
    "selective_bootstrap",
    "topk_pvalues",
]


def __getattr__(name: str) -> Any:
    # The selectors bring scikit-learn along, which takes longer to load than everything else here.
    if name in ("SelectHSIC", "SelectMMD"):
        from kernsift import selectors

        return getattr(selectors, name)
    raise AttributeError(f"module 'kernsift' has no attribute {name!r}")

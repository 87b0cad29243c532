"""Which features changed, and which matter: kernel tests of every feature, and valid p-values for the ones you pick."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernsift.api import compare, relate, screen, selective_bootstrap, topk_pvalues
    from kernsift.exceptions import CalibrationWarning, InputError
    from kernsift.groups import compare_groups
    from kernsift.options import Block, Incomplete, Multiscale
    from kernsift.result import Result
    from kernsift.selectors import SelectHSIC, SelectMMD

    __version__: str

__all__ = [
    "Block",
    "CalibrationWarning",
    "Incomplete",
    "InputError",
    "Multiscale",
    "Result",
    "SelectHSIC",
    "SelectMMD",
    "compare",
    "compare_groups",
    "relate",
    "screen",
    "selective_bootstrap",
    "topk_pvalues",
]


# The module of each public name. Modules are loaded when a name is first used: importing SciPy's statistics takes most
# of a second, which would delay `kernsift --help` and shell completion.
_HOMES = {
    "Block": "options",
    "CalibrationWarning": "exceptions",
    "Incomplete": "options",
    "InputError": "exceptions",
    "Multiscale": "options",
    "Result": "result",
    "SelectHSIC": "selectors",
    "SelectMMD": "selectors",
    "compare": "api",
    "compare_groups": "groups",
    "relate": "api",
    "screen": "api",
    "selective_bootstrap": "api",
    "topk_pvalues": "api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("kernsift")
    if name not in _HOMES:
        raise AttributeError(f"module 'kernsift' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"kernsift.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])

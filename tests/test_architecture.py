"""The structure of the package: the order of imports, the cost of `import kernsift`, no dependence on one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "kernsift"

# The order of data flow: a package imports only from those before it. Imports for type checkers alone do not count.
ORDER = [
    "exceptions",
    "options",
    "execution",
    "distributions",
    "data",
    "kernels",
    "estimators",
    "inference",
    "report",
    "result",
    "arguments",
    "questions",
    "api",
    "groups",
    "selectors",
    "experiments",
    "cli",
    "__init__",
    "__main__",
]

FILES = sorted(PACKAGE.rglob("*.py"))


@dataclass(frozen=True)
class Import:
    """One import of a module of the package, by the name it has in ORDER."""

    module: str
    line: int


def module_of(file: Path) -> str:
    """The name in ORDER of a file, given relative to the package: its folder, or its own name."""
    return file.parts[0] if len(file.parts) > 1 else file.stem


def resolve(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[list[str]]:
    """The dotted names an import statement asks for, in parts, where `package` holds the parts of the file's folder."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".") for alias in node.names]
    base = package[: len(package) - node.level + 1] if node.level else []
    base = base + (node.module.split(".") if node.module else [])
    return [[*base, alias.name] for alias in node.names]


def imports_of(source: str, file: Path, known: set[str]) -> list[Import]:
    """The imports from the package in one file, whose path is relative to it; `known` holds the names of its modules.

    A name that is not a module (`from kernsift import compare`) comes from the package's own `__init__`.
    """
    found: list[Import] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            for parts in resolve(node, ["kernsift", *file.parts[:-1]]):
                if parts[0] == "kernsift":
                    module = parts[1] if len(parts) > 1 and parts[1] in known else "__init__"
                    found.append(Import(module, node.lineno))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def violations(source: str, file: Path, known: set[str]) -> list[str]:
    """A sentence for every import in the file that goes against the order."""
    own = module_of(file)
    complaints = []
    for used in imports_of(source, file, known):
        if used.module == own and len(file.parts) > 1:
            continue  # siblings in one folder
        if used.module not in ORDER or ORDER.index(used.module) >= ORDER.index(own):
            complaints.append(f"{file}, line {used.line}: {own} imports {used.module}, which does not come before it")
    return complaints


def known_modules() -> set[str]:
    return {module_of(file.relative_to(PACKAGE)) for file in FILES} | set(ORDER)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_each_module_imports_only_from_those_before_it(file: Path) -> None:
    relative = file.relative_to(PACKAGE)
    assert module_of(relative) in ORDER, (
        f"The module {module_of(relative)!r} has no place in the order of imports: add it to ORDER in "
        f"tests/test_architecture.py, after everything it imports and before everything that imports it."
    )
    assert violations(file.read_text(encoding="utf-8"), relative, known_modules()) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/fitted.py", "from kernsift.estimators.scores import Scores"),
        ("kernels/fitted.py", "import kernsift.estimators.scores"),
        ("kernels/fitted.py", "from .. import estimators"),
        ("kernels/fitted.py", "from ..estimators.scores import Scores"),
        ("kernels/fitted.py", "from kernsift import estimators"),
        ("kernels/fitted.py", "from kernsift import compare"),
        ("kernels/fitted.py", "def f():\n    from kernsift.estimators.scores import Scores"),
        ("estimators/linear.py", "from ..inference.exact import exact"),
        ("estimators/linear.py", "from kernsift.inference import exact"),
        ("estimators/linear.py", "from .. import inference"),
        ("report/plots.py", "from kernsift.result import Result"),
        ("result.py", "def f():\n    from kernsift.cli import main"),
    ],
)
def test_an_import_against_the_order_is_seen(file: str, source: str) -> None:
    assert len(violations(source, Path(file), set(ORDER))) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("kernels/fitted.py", "import numpy as np\nfrom scipy import special\nfrom kernsift.data.tables import Table"),
        ("estimators/linear.py", "from .draws import MMDDraws\nfrom . import block\nfrom ..kernels import functions"),
        ("estimators/linear.py", "from kernsift.estimators.block import blocks\nfrom .. import kernels"),
        ("estimators/__init__.py", "from kernsift.estimators.linear import linear_mmd\nfrom .block import block_mmd"),
        ("report/plots.py", "if TYPE_CHECKING:\n    from kernsift.result import Result"),
        ("result.py", "class Result:\n    def plot(self):\n        from kernsift.report.plots import draw"),
        ("__init__.py", "from kernsift.api import compare\nfrom .cli import main"),
        ("__main__.py", "from kernsift.cli import main\nfrom kernsift import compare"),
    ],
)
def test_an_import_along_the_order_passes(file: str, source: str) -> None:
    assert violations(source, Path(file), set(ORDER)) == []


# What the statistics may use of the packages before them: no cluster, and no file formats.
STATISTICS = ("kernels", "estimators", "inference")
EXECUTION = {"arrays", "codes", "compiled", "fused", "notes", "parallel", "progress", "threads"}
FOREIGN = {"dask", "distributed", "pyarrow", "h5py", "zarr"}


def reaches(source: str, file: Path) -> list[str]:
    """Imports of a cluster or of file formats in a file, whose path is relative to the package."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for parts in resolve(node, ["kernsift", *file.parts[:-1]]):
            execution = parts[:2] == ["kernsift", "execution"] and not EXECUTION & set(parts[2:3])
            if execution or parts[:3] == ["kernsift", "data", "formats"] or parts[0] in FOREIGN:
                found.append(f"{file}, line {node.lineno}: {'.'.join(parts)}")
    return found


@pytest.mark.parametrize(
    "file", [file for file in FILES if module_of(file.relative_to(PACKAGE)) in STATISTICS], ids=lambda file: file.name
)
def test_the_statistics_know_no_cluster_and_no_files(file: Path) -> None:
    assert reaches(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from kernsift.execution.dask_workers import DaskWorkers",
        "from kernsift.execution import dask_workers",
        "from ..execution import dask_workers, threads",
        "import kernsift.execution.memory",
        "def f():\n    from kernsift.data.formats.source import Source",
        "from kernsift.data import formats",
        "import dask.array as da",
        "from distributed import Client",
    ],
)
def test_a_cluster_or_a_file_format_in_the_statistics_is_seen(source: str) -> None:
    assert len(reaches(source, Path("estimators/linear.py"))) == 1
    allowed = "from kernsift.execution import threads\nfrom kernsift.execution.parallel import parallel_map"
    assert reaches(allowed + "\nfrom kernsift.data.tables import Table", Path("estimators/linear.py")) == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_map_names_modules_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    files = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py|[a-z_]+\.py)`", text))
    homes = (PACKAGE, ROOT, PACKAGE / "experiments", PACKAGE / "estimators")
    assert len(files) > 10 and [name for name in files if not any((home / name).is_file() for home in homes)] == []
    modules = set(re.findall(r"`([a-z]+(?:\.[a-z_]+)+)(?:\.[A-Z]\w+)?`", text))
    packages = {name.removesuffix(".py") for name in ORDER}
    for module in (module.split(".") for module in modules if module.split(".")[0] in packages):
        # The last part may be a function of the module.
        found = [PACKAGE.joinpath(*module[:stop]) for stop in (len(module), len(module) - 1)]
        assert any(path.with_suffix(".py").is_file() or path.is_dir() for path in found), ".".join(module)


def test_the_top_level_has_at_most_ten_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {file.parent for file in FILES}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


OPTIONAL = ["pandas", "polars", "pyarrow", "torch", "dask", "matplotlib", "click", "jinja2", "zarr", "h5py", "numba"]


def run_python(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_the_package_loads_no_optional_package() -> None:
    loaded = run_python(f"import sys, kernsift; print(*[name for name in {OPTIONAL} if name in sys.modules])").split()
    assert loaded == [], (
        f"import kernsift loads {loaded}: import them where they are used. scikit-learn loads pandas wherever pandas "
        f"is installed, so what needs scikit-learn has to be imported on first use as well."
    )


def test_descriptions_of_two_samples_do_without_scipy_stats() -> None:
    # It takes a third of a second and 15 MB to import.
    program = """
import sys
import numpy as np
from kernsift import compare
X = np.random.default_rng(0).normal(size=(60, 3))
compare(X, X + [0, 0, 1], random_state=0).to_dict()
print("scipy.stats" in sys.modules)
"""
    assert run_python(program).strip() == "False"


WITHOUT_OPTIONAL = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import kernsift
for name in getattr(kernsift, "__all__", []):
    getattr(kernsift, name)
"""


def test_every_public_name_is_there_without_the_optional_packages() -> None:
    run_python(WITHOUT_OPTIONAL)


# A home or working folder at the start of a path; after a word character it is the middle of a path or an address.
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:work|root|home|Users)/")


GENERATED = {"__pycache__", "_build", "gallery", "generated"}


def project_files() -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "docs", "examples", "benchmarks", ".ci", ".github")]
    files = [file for folder in folders for file in folder.rglob("*") if not GENERATED & set(file.parts)]
    top = [file for file in ROOT.iterdir() if file.suffix in {".md", ".toml", ".cff"} or file.name == "Makefile"]
    return [file for file in files + top if file.is_file()]


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = []
    for file in project_files():
        text = file.read_bytes().decode("utf-8", errors="replace")
        found += [f"{file.relative_to(ROOT)}: {match.group()}" for match in MACHINE_PATH.finditer(text)]
    assert found == []


@pytest.mark.parametrize("start", ["work", "root", "home", "Users"])
def test_a_machine_path_is_seen(start: str) -> None:
    assert MACHINE_PATH.search(f'open("/{start}/data.csv")')
    assert not MACHINE_PATH.search(f"https://example.org/{start}/data.csv")

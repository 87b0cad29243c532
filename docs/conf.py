"""Sphinx configuration. Everything generated goes to folders that git ignores."""

from __future__ import annotations

import os
import re
import shutil
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent

project = "kernsift"
author = "kernsift developers"
copyright = author
release = version = installed_version("kernsift")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
measured = ["power/**", "calibration/**", "given/**", "designs/**"]
exclude_patterns = ["_build", *measured, "images", "**/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]
default_role = "literal"

# Pages are run from the start at every build: a page that fails, or warns, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3


class GalleryOrder:
    """The commonest question first; examples that are not named here come last, by name."""

    FIRST = (
        "plot_compare_tumours",
        "plot_drift_polars",
        "plot_relate_diabetes",
        "plot_strata",
        "plot_pairs",
        "plot_units",
        "plot_confounders",
        "plot_survival",
        "plot_groups",
        "plot_wine_pipeline",
        "plot_intervals",
        "plot_generated_digits",
        "plot_own_scores",
        "plot_threshold",
        "plot_scaling_law",
        "plot_selective_bootstrap",
    )

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        name = Path(filename).stem
        return (self.FIRST.index(name) if name in self.FIRST else len(self.FIRST), name)

    def __repr__(self) -> str:
        return "GalleryOrder"


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    # Its data are not part of the project.
    "ignore_pattern": r"__init__\.py" if "KERNSIFT_DATA" in os.environ else r"__init__\.py|plot_single_cells\.py",
    "within_subsection_order": GalleryOrder,
    "abort_on_example_error": True,
    "thumbnail_size": (480, 330),
    "image_scrapers": ("matplotlib",),
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 5,
    "remove_config_comments": True,
    "plot_gallery": True,
    "write_computation_times": False,
}

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "kernsift"
html_static_path = ["_static"]
html_css_files = ["kernsift.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b93c0b", "color-brand-content": "#b93c0b"},
    "dark_css_variables": {"color-brand-primary": "#fb923c", "color-brand-content": "#fb923c"},
    "navigation_with_keys": True,
}

_SECTION_WITH_ENTRIES = {"Parameters", "Attributes", "Returns"}
_ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*) : (?P<text>.*)$")


def describe_entries(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """`name : description` on one line; numpydoc would take the first line of it for a type.

    A type is short or a set in braces, ends without a full stop, and has its description indented below.
    """
    if not str(getattr(obj, "__module__", "")).startswith("kernsift"):
        return  # inherited from scikit-learn
    section, out = "", []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following and set(following) == {"-"}:
            section = line.strip()
        entry = _ENTRY.match(line) if section in _SECTION_WITH_ENTRIES else None
        short = len(entry["text"]) <= 70 or entry["text"].startswith("{") if entry else False
        if entry and short and following.startswith("    ") and entry["text"][-1:] not in ".;,":
            entry = None
        out += [entry["names"], "    " + entry["text"]] if entry else [line]
    lines[:] = out


def copy_measured(app: Sphinx, error: Exception | None) -> None:
    """The files that the pages of figures point to go along as they are."""
    for name in ("power", "calibration", "given", "designs", "speed", "scaling", "reproduction"):
        if error is None and app.builder.format == "html":
            shutil.copytree(HERE / name, Path(app.outdir) / name, dirs_exist_ok=True)


def inline_formula(translator: Any, node: nodes.math) -> None:
    """A formula as MathML, which browsers draw by themselves: no script, and nothing to be fetched."""
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def formula(translator: Any, node: nodes.math_block) -> None:
    """The same on lines of its own."""
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
    app.connect("build-finished", copy_measured)
    # Before numpydoc, which reads docstrings at the usual priority.
    app.connect("autodoc-process-docstring", describe_entries, priority=400)

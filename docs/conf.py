"""Sphinx configuration. Everything generated goes to folders that git ignores."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

project = "kernsift"
author = "kernsift developers"
copyright = author
release = version = installed_version("kernsift")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = ["_build", "power", "images", "**/README.*", "**/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
# The pages of figures come and go with the runs that make them.
suppress_warnings = ["toc.empty_glob", "config.cache"]
default_role = "literal"

# Pages are run from the start at every build: a page that fails, or warns, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "ExampleTitleSortKey",
    "abort_on_example_error": True,
    "thumbnail_size": (480, 330),
    "image_scrapers": ("matplotlib",),
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 5,
    "remove_config_comments": True,
    "plot_gallery": True,
}

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

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
    """`name : description` is how entries are written here; numpydoc would take the first line of it for a type."""
    if not str(getattr(obj, "__module__", "")).startswith("kernsift"):
        return  # inherited from scikit-learn
    section, out = "", []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following and set(following) == {"-"}:
            section = line.strip()
        entry = _ENTRY.match(line) if section in _SECTION_WITH_ENTRIES else None
        out += [entry["names"], "    " + entry["text"]] if entry else [line]
    lines[:] = out


def setup(app: Sphinx) -> None:
    # Before numpydoc, which reads docstrings at the usual priority.
    app.connect("autodoc-process-docstring", describe_entries, priority=400)

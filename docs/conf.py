"""How Sphinx builds the site: `make docs`.  It asks the network for nothing."""

import re
from datetime import date

import dpsearch

project = "dpsearch"
author = "the dpsearch authors"
copyright = f"{date.today().year}, {author}"
version = release = dpsearch.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "gallery",
    "*/cache",
    "*/tables/*.md",
    "examples/*.ipynb",
    "examples/*.py",
]

# -- pages -----------------------------------------------------------------------------------------

highlight_language = "none"  # what says nothing is output, or a formula
myst_heading_anchors = 3  # links to headings, as code hosts make them

# -- docstrings ------------------------------------------------------------------------------------

autosummary_generate = False  # every name has its place on a page of docs/reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the text says what a parameter may be
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
# `name` is code, and a link where the name has a place.
default_role = "py:obj"
# Names of other libraries and plain values stand in backticks too.
nitpick_ignore_regex = [(r"py:.*", r".*")]


def formulas_are_literal(app, what, name, obj, options, lines):
    """Show an indented paragraph as it stands: in docstrings that is a formula."""
    out = []
    for at, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        before = next((other for other in reversed(out) if other.strip()), "")
        begins = indent > len(before) - len(before.lstrip()) and at and not lines[at - 1].strip()
        if begins and not re.match(r"\s*(>>>|[-*] |\.\. |:)", line) and not before.endswith("::"):
            out += [" " * (len(before) - len(before.lstrip())) + "::", ""]
        out.append(line)
    lines[:] = out


def setup(app):
    app.connect("autodoc-process-docstring", formulas_are_literal, priority=400)


# -- gallery ---------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "write_computation_times": False,
}

# -- looks -----------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"dpsearch {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
templates_path = []

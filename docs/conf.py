"""The documentation site: ``make docs`` builds it into results/site, without the network."""

import os
import shutil
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# Sphinx takes pages from this folder only.
shutil.rmtree(HERE / "notebooks", ignore_errors=True)
shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks", ignore=shutil.ignore_patterns("__pycache__"))

project = "pymc_dpgmm"
author = "the pymc_dpgmm developers"
project_copyright = "2026, the pymc_dpgmm developers"
release = version = version_of("pymc-dpgmm")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
]
# Links into the manuals of PyMC, ArviZ and others need their inventories from the network.
if os.environ.get("DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "pymc": ("https://www.pymc.io/projects/docs/en/stable", None),
        "arviz": ("https://python.arviz.org/en/stable", None),
    }

templates_path = ["_templates"]
exclude_patterns = ["_ipython", "howto/data/README.md", "*.py", "**.ipynb_checkpoints"]
# The notebooks are Python files, and only they: those of docs itself are excluded above.
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath", "attrs_inline"]
myst_heading_anchors = 3

# Pages are executed when they have changed. What a cell prints to stderr, a warning above all, is an error.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / ".cache" / "docs")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "warn"
# Kernels start with PyMC's messages about its progress turned off.
os.environ["IPYTHONDIR"] = str(HERE / "_ipython")

autosummary_generate = True
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = "pymc_dpgmm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "limits": [], "notebooks/old_faithful": []}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

nitpicky = True

# Public methods; all others of a class are for the package itself.
METHODS = {
    "n_clusters_pmf",
    "alpha_for_n_clusters",
    "gamma_for_n_clusters",
    "from_data",
    "sample",
    "draws",
    "save",
    "load",
    "to_datatree",
    "last",
}


def keep_public_methods(app, what, name, obj, skip, options):
    """Leave out what a class has for PyMC or for the rest of the package."""
    return skip or (what == "class" and name not in METHODS)


def link_notebooks(app, docname, source):
    """Let links that are right in the repository lead to the copies of the notebooks in this folder."""
    up = "../" * docname.count("/")
    source[0] = source[0].replace(f"]({up}../notebooks/", f"]({up}notebooks/")
    if docname.startswith("notebooks/"):
        source[0] = source[0].replace("](../docs/", "](../")


def setup(app):
    """Connect the choice of methods, and the links."""
    app.connect("source-read", link_notebooks)
    app.connect("autodoc-skip-member", keep_public_methods)

"""Sphinx reads this: `make docs` builds the guide, and a warning is an error."""

from __future__ import annotations

from stepscope import __version__

project = "stepscope"
copyright = "the stepscope authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "stepscope"
html_show_sphinx = False

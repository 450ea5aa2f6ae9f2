"""The docs site: `make site`. The source is the whole repository, so that links work here as they do on GitHub."""

from __future__ import annotations

project = "Sonde"
author = "The authors of Sonde"
extensions = ["myst_parser", "sphinx.ext.autodoc"]

root_doc = "docs/index"
include_patterns = ["docs/**", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "benchmarks", "examples", "tools"]
myst_enable_extensions = ["colon_fence", "html_image", "smartquotes"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write `name` as Markdown does
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "Sonde"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

"""The site of the documents, built by `make docs` with Sphinx from the Markdown files as they are.

Links between files are checked: one that leads nowhere, a missing heading, or a page that
`docs/README.md` does not list, is an error.  Nothing is loaded from elsewhere.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent
INDEX = ROOT / "docs/README.md"

project = "Palyra"
html_title = "Palyra"
html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
html_copy_source = False
html_static_path = [str(ROOT / "docs/site/static")]
html_css_files = ["site.css"]
html_additional_pages = {"index": "forward.html"}
templates_path = [str(ROOT / "docs/site")]

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "docs/**.md"]
exclude_patterns = [".*", "**/.*", "build", "palyra", "tests"]
myst_heading_anchors = 4  # the anchors that GitHub makes
nitpicky = True
highlight_language = "none"  # what no fence names


def read_groups() -> list[tuple[str, list[str]]]:
    """The headings of `docs/README.md`, each with the pages below it."""
    groups: list[tuple[str, list[str]]] = []
    for line in INDEX.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## (.+)", line):
            groups.append((heading[1], []))
        elif listed := re.match(r"- \[[^\]]+\]\(([^)#]+)\.md\)", line):
            path = (INDEX.parent / f"{listed[1]}.md").resolve().relative_to(ROOT)
            groups[-1][1].append(str(path.with_suffix("")))
    return groups


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the contents to the first page, and the list of its folder to an index of one."""
    if page == root_doc:
        app.env.note_dependency(str(INDEX))  # read again when the list changes
        source[0] += "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n"
            + "\n".join(f"/{each}" for each in pages)
            + "\n```\n"
            for caption, pages in [("Contents", ["docs/README"]), *read_groups()]
        )
    elif page in {"docs/decisions/README", "docs/proof/README"}:
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[!R]*\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the contents."""
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

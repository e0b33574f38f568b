"""Builds the site from the Markdown pages: `make site`.

Sphinx reads a copy of the pages that can be reached from the README. docs/README.md is the navigation. A linked file
that is no page gets one, so every link also works on the site, and offline.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import TextIO

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from gke_ai.catalog.versions import PROJECT_VERSION
from tests.support.repository import ROOT, tracked

HOME = Path("README.md")
FRONT = Path("docs/README.md")
OUTPUT = ROOT / ".local" / "site"
LINK = re.compile(r"(?<=\]\()(?P<file>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
PICTURES = (".png", ".svg")
LANGUAGES = {".json": "json", ".py": "python", ".yaml": "yaml"}
# Tables scroll on a narrow screen, and text is wider on a wide one. Code wraps, so that nothing of it is hidden. In a
# table of settings (five columns), the meaning is the widest. Pictures follow the theme of the page.
STYLE = """
article table { display: block; overflow-x: auto; font-size: 0.875rem; }
article img { border-radius: 12px; }
body[data-theme="dark"] img { color-scheme: dark; }
body[data-theme="light"] img { color-scheme: light; }
article td:first-child code { white-space: nowrap; }
article td:nth-child(4):nth-last-child(2) { min-width: 22em; }
article td code { overflow-wrap: anywhere; }
article .highlight pre { font-size: 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
article .highlight-console pre { font-size: 0.72rem; }
@media (min-width: 86em) { .content { width: 57em; } }
@media (min-width: 100em) { .content { width: 68em; } }
"""


def linked(page: Path, root: Path = ROOT) -> list[Path]:
    """The files of the repository that a page links to, in the order of the links."""
    folder = (root / page).parent
    files = [(folder / match["file"]).resolve().relative_to(root) for match in LINK.finditer((root / page).read_text())]
    return list(dict.fromkeys(files))


def pages(root: Path = ROOT) -> list[Path]:
    """Every Markdown page that can be reached from the README by links."""
    reached = [HOME]
    for page in reached:
        reached += [
            file
            for file in linked(page, root)
            if file.suffix == ".md" and file not in reached and (root / file).exists()
        ]
    return reached


def navigation(root: Path = ROOT) -> dict[str, list[Path]]:
    """The pages by section of docs/README.md. A page of two sections is listed in the first."""
    menu: dict[str, list[Path]] = {}
    listed = {HOME, FRONT}
    for part in (root / FRONT).read_text().split("\n## ")[1:]:
        files = [(root / FRONT).parent / match["file"] for match in LINK.finditer(part)]
        section = dict.fromkeys(file.resolve().relative_to(root) for file in files)
        menu[part.partition("\n")[0]] = [file for file in section if file.suffix == ".md" and file not in listed]
        listed.update(section)
    return {title: section for title, section in menu.items() if section}


def toctree(entries: list[str], caption: str = "") -> str:
    """A hidden list of pages, from which Sphinx makes a part of the navigation."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


def copied(page: Path, root: Path = ROOT) -> str:
    """The text of a page in the copy, with its part of the navigation."""
    text = LINK.sub(lambda match: f"{page_of(match['file'])}{match['anchor'] or ''}", (root / page).read_text())
    text = text.replace("```mermaid", "```text")  # a script from elsewhere would draw it
    if page == HOME:
        menu = {title: [str(file) for file in section] for title, section in navigation(root).items()}
        single = [section[0] for section in menu.values() if len(section) == 1]
        captioned = [toctree(section, title) for title, section in menu.items() if len(section) > 1]
        return "".join([text, toctree([str(FRONT), *single]), *captioned])
    if page.name == HOME.name and page != FRONT:  # the front page of a folder
        inside = [file.name for file in linked(page, root) if file.parent == page.parent and file.suffix == ".md"]
        return text + toctree(inside) if inside else text
    return text


def page_of(file: str) -> str:
    """The page that shows a linked file: itself, or one with its text."""
    return file if file.endswith((".md", *PICTURES)) else f"{file.rstrip('/')}.md"


def shown(file: Path, root: Path = ROOT) -> str:
    """A page with the text of a file that is no page, or with the names of the files in a folder."""
    inside = [str(path.relative_to(root)) for path in tracked(f"{file}/**", root)]
    text = "\n".join(inside) if (root / file).is_dir() else (root / file).read_text()
    return f"---\norphan: true\n---\n# {file}\n\n`````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n`````\n"


def copy(folder: Path, root: Path = ROOT) -> None:
    """Writes the copy of the pages, and of what they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = {page: copied(page, root) for page in pages(root)}
    for file in {file for page in texts for file in linked(page, root) if (root / file).exists()} - texts.keys():
        if file.suffix in PICTURES:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, folder / file)
        else:
            texts[file.with_name(f"{file.name}.md")] = shown(file, root)
    for page, text in texts.items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text)


def build(output: Path, work: Path, root: Path = ROOT, warnings: TextIO = sys.stderr) -> int:
    """Builds the site, and returns 1 if a page has a mistake, such as a link without a target."""
    source, static = work / "pages", work / "static"
    copy(source, root)
    static.mkdir(exist_ok=True)
    (static / "site.css").write_text(STYLE)
    settings = {
        "project": "GKE AI infrastructure",
        "root_doc": HOME.stem,
        "extensions": ["myst_parser", "sphinx_copybutton"],
        "myst_heading_anchors": 4,
        "html_theme": "furo",
        "html_title": f"GKE AI infrastructure {PROJECT_VERSION}",
        "html_static_path": [str(static)],
        "html_css_files": ["site.css"],
        "html_copy_source": False,
    }
    with patch_docutils(), docutils_namespace():
        site = Sphinx(
            source, None, output, work / "parsed", "html", settings, status=None, warning=warnings, warningiserror=True
        )
        site.build()
    shutil.copy(output / "README.html", output / "index.html")
    return site.statuscode


if __name__ == "__main__":
    print(f"Building {len(pages())} pages, in about 15 seconds.", flush=True)
    if status := build(OUTPUT, OUTPUT.with_name("site-work")):
        sys.exit(status)
    shutil.copy(ROOT / "docs" / "llms.txt", OUTPUT)
    print(f"Open {(OUTPUT / 'index.html').relative_to(ROOT)} in a browser.")

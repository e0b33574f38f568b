"""The site has every page, its links have targets, and it loads nothing from elsewhere: maintain/pages/site.py."""

import io
import re
from pathlib import Path

import pytest

from maintain.pages import site
from tests.support.repository import ROOT, tracked

pytestmark = pytest.mark.engine
# Building the site takes 20 seconds of the CPU.
of_the_site = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, warnings = tmp_path_factory.mktemp("site"), io.StringIO()
    assert site.build(folder / "site", folder / "work", warnings=warnings) == 0, warnings.getvalue()
    return folder / "site"


@of_the_site
def test_each_page_is_on_the_site_and_each_of_docs_in_the_navigation(built: Path) -> None:
    home = (built / "index.html").read_text()
    addresses = [page.relative_to(ROOT).with_suffix(".html") for page in tracked("docs/**/*.md")]
    assert [address for address in addresses if f'href="{address}"' not in home] == []
    for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "emulator/README"):
        assert (built / f"{name}.html").exists()
    assert 'href="Pulumi.dev.yaml.html"' in home, "a linked file is shown as a page"
    assert "gke-ai:cluster" in (built / "Pulumi.dev.yaml.html").read_text()


@of_the_site
def test_the_site_loads_nothing_from_elsewhere(built: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//"""
    )
    found = [file.name for file in built.rglob("*.html") if loads.search(file.read_text())]
    styles = [
        file.name for file in built.rglob("*.css") if re.search(r"url\([\"']?(?:https?:)?//|@import", file.read_text())
    ]
    assert len(list(built.rglob("*.html"))) > 80
    assert found + styles == []


@of_the_site
def test_each_picture_of_a_page_has_a_text_alternative(built: Path) -> None:
    pictures = [
        (file.name, picture) for file in built.rglob("*.html") for picture in re.findall("<img[^>]*>", file.read_text())
    ]
    assert len(pictures) >= 5
    assert [picture for picture in pictures if not re.search(r'alt="[^"]*[a-z]+ [a-z]+[^"]*"', picture[1])] == []


@pytest.mark.parametrize("picture", tracked("docs/**/*.svg"), ids=lambda path: path.stem)
def test_each_picture_has_a_title_and_a_palette_for_dark_pages(picture: Path) -> None:
    text = picture.read_text()
    assert re.search(r"<title>[^< ]+ [^<]+</title>", text)
    assert "@media(prefers-color-scheme:dark)" in text


FRONT = "# Documentation\n\n## How to\n\n[Deploy](deploy.md)\n"


@pytest.mark.parametrize(
    ("pages", "warning"),
    [
        ({}, ""),
        ({"docs/deploy.md": "# Deploy\n\n[Nowhere](#nowhere)\n"}, "'nowhere'"),
        ({"docs/deploy.md": "# Deploy\n\n[Front](README.md#nowhere)\n"}, "nowhere"),
        ({"docs/deploy.md": "# Deploy\n\n[Limits](limits.md)\n", "docs/limits.md": "# Limits\n"}, "in any toctree"),
        ({"docs/deploy.md": "# Deploy\n\n### Too deep\n"}, "header level"),
        ({"docs/deploy.md": "# Deploy\n\n![A picture](missing.png)\n"}, "not readable"),
    ],
)
def test_a_mistake_in_a_page_fails_the_build(pages: dict[str, str], warning: str, tmp_path: Path) -> None:
    """Planted: a link without a target, in its page or in another, an orphan, a wrong heading and a missing picture."""
    root, warnings = tmp_path / "checkout", io.StringIO()
    texts = {
        "README.md": "# Home\n\n[Documentation](docs/README.md)\n",
        "docs/README.md": FRONT,
        "docs/deploy.md": "# Deploy\n",
    }
    for name, text in {**texts, **pages}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert bool(site.build(tmp_path / "site", tmp_path / "work", root, warnings)) == bool(warning)
    assert warning in warnings.getvalue()

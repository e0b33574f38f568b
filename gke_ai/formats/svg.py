"""Pictures as SVG text: a few shapes, text that fits, and colors for light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from math import fsum

# (on light, on dark) of each color, with a contrast of at least 4.5 for text.
PALETTE = {
    "page": ("#ffffff", "#0d1117"),
    "card": ("#f6f8fa", "#161b22"),
    "band": ("#eef2f6", "#1b222c"),
    "ink": ("#1f2328", "#f0f6fc"),
    "muted": ("#57606a", "#9aa4af"),
    "line": ("#b4bec8", "#4a535e"),
    "blue": ("#0969da", "#58a6ff"),
    "teal": ("#0f766e", "#4fd1c5"),
    "violet": ("#8250df", "#bc8cff"),
    "green": ("#1a7f37", "#3fb950"),
    "amber": ("#9a6700", "#d8a025"),
    "red": ("#cf222e", "#ff7b72"),
}
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
ROUNDING = 0.001
# The edge of a page, and the height of a line of its headline.
EDGE, LINE = 24.0, 22.0
# Widths of letters in ems, for wide fonts, so that texts also fit in others.
_NARROW, _WIDE = set("iljtfrI.,:;'|()[]/-! "), set("mwMW@%—")


def width(text: str, size: float, bold: bool = False) -> float:
    """Estimates the width of a text, rather too wide than too narrow."""
    # Exact: `sum` rounds otherwise before Python 3.12, and a text would break elsewhere.
    ems = fsum(0.38 if c in _NARROW else 0.95 if c in _WIDE else 0.7 if c.isupper() else 0.6 for c in text)
    return ems * size * (1.12 if bold else 1)


def fits(text: str, room: float, size: float, bold: bool = False) -> bool:
    """Whether a text fits, up to the rounding of the room that a box has left for it."""
    return width(text, size, bold) <= room + ROUNDING


def fitted(text: str, room: float, size: float, bold: bool = False) -> str:
    """Cuts the end of a text that does not fit."""
    if fits(text, room, size, bold):
        return text
    while text and not fits(text + "…", room, size, bold):
        text = text[:-1]
    return text.rstrip() + "…"


def wrapped(text: str, room: float, size: float, bold: bool = False) -> list[str]:
    """Splits a text into lines that fit."""
    lines: list[str] = []
    for word in text.split():
        if lines and fits(f"{lines[-1]} {word}", room, size, bold):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass
class Canvas:
    """A picture; lengths in pixels, y downwards. Screen readers read its `title`."""

    width: float
    height: float
    title: str
    parts: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str,
        stroke: str | None = None,
        radius: float = 8,
        thick: float = 1,
        opacity: float = 1,
        dashed: bool = False,
    ) -> None:
        """Draws a rectangle with round corners."""
        more = f' stroke-width="{number(thick)}"' if stroke else ""
        more += ' stroke-dasharray="5 4"' if dashed else ""
        more += f' opacity="{number(opacity)}"' if opacity < 1 else ""
        box = f'x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" rx="{number(radius)}"'
        self.parts.append(f'<rect class="{self.style(fill, stroke)}" {box}{more}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        fill: str = "ink",
        bold: bool = False,
        anchor: str = "start",
    ) -> None:
        """Draws a line of text on the base line `y`."""
        more = ' font-weight="600"' if bold else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        at = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}"'
        self.parts.append(f'<text class="{self.style(fill)}" {at}{more}>{escape(text)}</text>')

    def page(self, headline: Iterable[str]) -> None:
        """Draws the background, and a headline in lines."""
        self.rect(0, 0, self.width, self.height, "page", radius=12)
        for place, line in enumerate(headline):
            self.text(EDGE, 38 + LINE * place, line, 17, bold=True)

    def legend(self, y: float, entries: Iterable[tuple[str, bool, str]]) -> float:
        """Draws entries of a legend: a color, whether it is an outline, and a text. Returns the end of the last one."""
        x = EDGE
        for color, outline, text in entries:
            if x + 27 + width(text, 12) > self.width - EDGE:
                x, y = EDGE, y + 20
            if outline:
                self.rect(x, y - 10, 20, 12, "page", color, radius=3, thick=1.6, dashed=True)
            else:
                self.rect(x, y - 10, 20, 12, color, radius=3)
            self.text(x + 27, y, text, 12, "muted")
            x += 27 + width(text, 12) + 16
        return x

    def path(
        self, d: str, stroke: str | None, thick: float = 1.5, dashed: bool = False, fill: str | None = None
    ) -> None:
        """Draws a line, or a filled outline."""
        more = ' stroke-dasharray="5 4"' if dashed else ""
        style = self.style(fill, stroke)
        self.parts.append(f'<path class="{style}" d="{d}" stroke-width="{number(thick)}"{more}/>')

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str, thick: float = 1, dashed: bool = False
    ) -> None:
        """Draws a straight line."""
        self.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", stroke, thick, dashed)

    def style(self, fill: str | None, stroke: str | None = None) -> str:
        """Returns the classes of a shape."""
        names = [f"f-{fill}" if fill else "f-none", *([f"s-{stroke}"] if stroke else [])]
        self.used.update(names)
        return " ".join(names)

    def rendered(self) -> str:
        """Returns the whole picture."""
        size = f'viewBox="0 0 {number(self.width)} {number(self.height)}" width="{number(self.width)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} height="{number(self.height)}" role="img"'
        light, dark = ("".join(self.rules(shade)) for shade in (0, 1))
        style = f"text{{font-family:{FONT}}}.f-none{{fill:none}}{light}@media(prefers-color-scheme:dark){{{dark}}}"
        head += f' aria-label="{escape(self.title)}"><title>{escape(self.title)}</title><style>{style}</style>'
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"

    def rules(self, shade: int) -> Iterable[str]:
        """Yields the style rules of the used colors, on light (0) or dark (1)."""
        for name in sorted(self.used - {"f-none"}):
            target, _, color = name.partition("-")
            yield f".{name}{{{'fill' if target == 'f' else 'stroke'}:{PALETTE[color][shade]}}}"


def number(value: float) -> str:
    """Formats a length the same on every machine."""
    return f"{value:.1f}".rstrip("0").rstrip(".")

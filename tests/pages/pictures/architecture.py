"""Draws how the project is built: from a configuration to Google Cloud, or to the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from report.svg import Canvas, width

WIDTH, HEIGHT, MARGIN = 1160.0, 632.0, 24.0


@dataclass(frozen=True)
class Part:
    """A box: its position, name, description and contents."""

    x: float
    y: float
    wide: float
    high: float
    color: str
    name: str
    description: str
    lines: tuple[str, ...] = ()

    @property
    def right(self) -> tuple[float, float]:
        """The middle of its right edge."""
        return self.x + self.wide, self.y + self.high / 2

    @property
    def left(self) -> tuple[float, float]:
        """The middle of its left edge."""
        return self.x, self.y + self.high / 2


CONFIGURATION = Part(
    24, 160, 188, 148, "teal", "Configuration", "a Pulumi stack file",
    ("Pulumi.dev.yaml", "Pulumi.prod.yaml", "examples/*.yaml"),
)  # fmt: skip
SETTINGS = Part(
    256, 160, 188, 148, "blue", "settings/", "what a stack may ask for",
    ("reads it into types", "tells every mistake", "derives sizes and quotas"),
)  # fmt: skip
COMPONENTS = Part(
    488, 160, 188, 148, "violet", "components/", "one to a file",
    ("clusters, pools, buckets", "queues, tenants, alerts", "servers, runs, autoscaling"),
)  # fmt: skip
PULUMI = Part(
    720, 160, 154, 148, "amber", "Pulumi", "the real engine",
    ("previews", "creates in order", "keeps the state"),
)  # fmt: skip
GOOGLE = Part(
    934, 86, 202, 138, "green", "Google Cloud", "your project",
    ("GKE, Storage, IAM", "GPUs and TPUs", "Kueue and JobSet"),
)  # fmt: skip
EMULATOR = Part(
    934, 246, 202, 138, "green", "emulator/", "this machine, no account",
    ("real Kubernetes API", "real Kueue, JobSet, HPA", "simulated cloud and nodes"),
)  # fmt: skip
CATALOG = Part(256, 408, 880, 74, "muted", "catalog/", "what Google Cloud offers, as plain data")
BESIDE = (
    Part(24, 534, 262, 74, "amber", "policy/", "judges what a stack asks for"),
    Part(307, 534, 262, 74, "amber", "report/", "a preview as one page for reviewers"),
    Part(590, 534, 262, 74, "amber", "outputs/", "a contract that other teams read"),
    Part(873, 534, 263, 74, "amber", "ops/", "status, smoke, doctor, recover, down"),
)


def drawn() -> str:
    """The architecture as SVG."""
    canvas = Canvas(
        WIDTH, HEIGHT, "One program, every environment: from a configuration to Google Cloud or the emulator"
    )
    canvas.rect(0, 0, WIDTH, HEIGHT, "page", radius=12)
    canvas.text(MARGIN, 42, "One program, every environment", 20, bold=True)
    canvas.text(MARGIN, 66, "What differs is the configuration, and the cloud behind Pulumi's plugins.", 13, "muted")

    flow = (CONFIGURATION, SETTINGS, COMPONENTS, PULUMI)
    for before, after in pairwise(flow):
        canvas.arrow([before.right, after.left], "muted", 1.8)
    for cloud in (GOOGLE, EMULATOR):
        canvas.arrow([PULUMI.right, cloud.left], "muted", 1.8)
    text = "__main__.py composes"
    canvas.text((SETTINGS.right[0] + COMPONENTS.left[0]) / 2, 146, text, 12, "muted", anchor="middle")
    canvas.text(PULUMI.x + PULUMI.wide / 2, 146, "gcp and kubernetes plugins", 12, "muted", anchor="middle")
    for user in (SETTINGS, COMPONENTS, EMULATOR):
        middle = user.x + user.wide / 2
        canvas.line(middle, CATALOG.y, middle, user.y + user.high, "line", 1.5, dashed=True)
    for part in (*flow, GOOGLE, EMULATOR, CATALOG, *BESIDE):
        draw_part(canvas, part)
    facts = "machines, TPU slices, capacity modes, labels, taints, what pods can get of a node"
    canvas.text(CATALOG.x + CATALOG.wide - 18, CATALOG.y + 42, facts, 12, "ink", anchor="end")
    canvas.text(MARGIN, 518, "Beside the program, for the people around it", 13, "muted")
    return canvas.rendered()


def draw_part(canvas: Canvas, part: Part) -> None:
    """Draws a box."""
    canvas.rect(part.x, part.y, part.wide, part.high, "card", part.color, radius=10, thick=1.4)
    canvas.rect(part.x + 16, part.y + 12, 28, 4, part.color, radius=2)
    canvas.text(part.x + 16, part.y + 36, part.name, 15, bold=True)
    canvas.text(part.x + 16, part.y + 55, part.description, 12, "muted")
    for index, line in enumerate(part.lines):
        assert width(line, 12) < part.wide - 18, f"{line} has no room"
        canvas.text(part.x + 16, part.y + 80 + 19 * index, line, 12)

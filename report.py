"""The former name of `gke_ai.registered.report`, until 0.5.0."""

from gke_ai.former_names import stand_for

stand_for("report", __name__)

"""The former name of `gke_ai.catalog`, until 0.5.0."""

from gke_ai.former_names import stand_for

stand_for("catalog", __name__)

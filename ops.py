"""The former name of `gke_ai.ops`, until 0.5.0."""

from gke_ai.former_names import stand_for

stand_for("ops", __name__)

"""The former name of `gke_ai.ops`, for one more release."""

from gke_ai.former_names import stand_for

stand_for("ops", __name__)

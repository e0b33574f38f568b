"""The former name of `gke_ai.settings`, for one more release."""

from gke_ai.former_names import stand_for

stand_for("settings", __name__)

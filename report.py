"""The former name of `gke_ai.report`, for one more release."""

from gke_ai.former_names import stand_for

stand_for("report", __name__)

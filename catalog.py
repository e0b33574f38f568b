"""The former name of `gke_ai.catalog`, for one more release."""

from gke_ai.former_names import stand_for

stand_for("catalog", __name__)

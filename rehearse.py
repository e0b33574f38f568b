"""The former name of `gke_ai.rehearse`, for one more release."""

from gke_ai.former_names import stand_for

stand_for("rehearse", __name__)

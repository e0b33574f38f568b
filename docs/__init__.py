"""The documentation, and what writes those of its pages that are made from code: `python -m docs`."""

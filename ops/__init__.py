"""What a person runs beside `pulumi`: status, smoke, recover, down. Works on any stack, on Google Cloud or the stand-in."""

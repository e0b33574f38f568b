"""The emulated cloud: runs the very program that goes to Google Cloud on a machine with no cloud account."""

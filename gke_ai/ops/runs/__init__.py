"""Lists, follows and removes runs."""

"""Shows a forecast or a simulation to people: sentences, tables and pictures, for a terminal, a page or a comment."""

"""Forms of output: the console, Markdown, SVG, and counts in sentences."""

"""A preview as one Markdown page for reviewers: changes, interruptions and cost.

`preview` runs Pulumi once. Everything else is pure functions over its result: `changes`, `interruptions`, `capacity`,
`policies`, `graph` and `page`.
"""

"""A preview as one Markdown page for reviewers: what changes, what that interrupts, and what it costs.

Pulumi is asked once (`preview`); everything else is pure functions over what it said: `changes`, `interruptions`,
`capacity`, `policies`, `graph` and `page`.
"""

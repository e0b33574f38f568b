"""Decodes registered resources, as a preview or a state has them, for policies, the report and the commands.

A fact about a resource, such as the maximum size of a node pool, is derived here only.
"""

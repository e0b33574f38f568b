"""Creates the components of a stack from its settings, in files that follow the order of the graph.

Each function creates the components of one part and adds the dependencies that no value carries.
"""

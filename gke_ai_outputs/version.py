"""Version of the contract of a stack's outputs. A producer needs nothing else of this package."""

VERSION = "1.4"

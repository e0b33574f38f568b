"""A repository of one's own, which depends on this package: what `init` writes, and what `upgrade` compares."""

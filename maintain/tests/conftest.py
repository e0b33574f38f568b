"""The tests of the tools of maintainers have the fixtures and hooks of those of the program."""

from tests.support.fixtures import *

"""The fixtures and hooks of the tests of the program."""

from tests.support.fixtures import *

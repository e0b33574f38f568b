"""Tests of the product, by what they need."""

import pytest

pytest.register_assert_rewrite("tests.support")  # its assertions show their values, as those of tests do

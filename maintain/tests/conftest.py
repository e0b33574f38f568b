"""The tests of the tools of maintainers have the fixtures and hooks of those of the program."""

from tests.support.fixtures import (
    build,
    emulator,
    emulator_with,
    errors_of_asyncio,
    loop,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_setup,
    servers,
)

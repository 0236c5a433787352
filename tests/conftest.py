"""Options and fixtures of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write the golden documents anew")


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-golden"))

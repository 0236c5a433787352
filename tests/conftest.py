"""Options and fixtures of the whole suite."""

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator

import hypothesis
import pytest

# How long an example takes is the machine's affair, not the behaviour's; and the suite tries the
# same examples each time. With EXPLORE set it looks for others.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="EXPLORE" not in os.environ,
)
hypothesis.settings.load_profile("any machine")

# Under nohup, or in the background of a script, some signals are ignored, and children inherit
# that: programs under test could then not be ended by them.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write the golden documents anew")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):  # xdist would put files of many tests first
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes come first: they take long, however few tests are in them.

    Of two workers neither then idles in the end, when files of quick tests are left to share.
    """
    long = {item.path for item in items if item.get_closest_marker("processes") is not None}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    """What is drawn in a test does not depend on the tests before it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def hooks_put_back() -> Iterator[None]:
    """Nor do the hooks of the interpreter: torch leaves one behind where a group was made."""
    before = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    sys.excepthook, threading.excepthook, sys.unraisablehook = before


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-golden"))

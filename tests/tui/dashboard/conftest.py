"""Local times on a screen are the same on every machine."""

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def utc() -> Iterator[None]:
    """As in UTC, whatever the machine says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()

"""A real hub process for a fresh run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.wire import Hub, hub_process


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path) as running:
        yield running

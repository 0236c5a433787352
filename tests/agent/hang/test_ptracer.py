"""Who may read a rank's stacks from outside."""

import os
from pathlib import Path

import pytest

from rankscope.agent import ptracer


@pytest.mark.parametrize(
    ("text", "needed"), [("0\n", False), ("1\n", True), ("2\n", False), ("?\n", False)]
)
def test_a_reader_is_named_only_where_the_kernel_asks_for_it(
    tmp_path: Path, text: str, needed: bool
) -> None:
    """Naming one replaces the debugger a program may have named itself."""
    scope = tmp_path / "ptrace_scope"
    scope.write_text(text)
    assert ptracer.is_needed(scope) is needed
    assert not ptracer.is_needed(tmp_path / "missing")


def test_the_kernel_is_asked_for_one_process_and_says_whether_it_took_it() -> None:
    """Never for all: a kernel without Yama answers that it knows no such option."""
    assert ptracer.allow(os.getppid()) is ptracer.SCOPE.exists()

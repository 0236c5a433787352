"""``--compile``: with what, and what is said of it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trainers import compiling

TINY = (
    *("--layers", "1", "--dim", "16", "--heads", "2", "--seq-len", "16", "--attach", "none"),
    *("--steps", "2", "--compile"),
)


def said(ended: Any) -> str:
    """What a run that ended well said of compiling, in its second line."""
    assert ended.code == 0, ended
    assert "step     2/2" in ended.stdout
    line: str = ended.stdout.splitlines()[1]
    return line


def test_a_compiler_is_what_cxx_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for inductor itself: ``CXX``, else the platform's own."""
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert compiling.compiler() is None
    (tmp_path / "none").touch(mode=0o755)
    assert compiling.compiler() == str(tmp_path / "none")


@pytest.mark.processes
@pytest.mark.skipif(not compiling.compiler(), reason="there is no C++ compiler here")
def test_with_a_compiler_blocks_are_compiled_with_inductor(launch: Callable[..., Any]) -> None:
    """And the run says so."""
    ended = launch("-m", "rankscope.trainers.ddp", *TINY)
    assert said(ended) == "blocks compiled with inductor"


@pytest.mark.processes
def test_without_a_compiler_ranks_use_aot_eager(launch: Callable[..., Any]) -> None:
    """Nothing has to be built then, and the run says so."""
    ended = launch("-m", "rankscope.trainers.fsdp2", *TINY, ranks=2, CXX="/none")
    assert said(ended) == "blocks compiled with aot_eager: there is no C++ compiler"


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("false"), reason="there is no program that only fails")
def test_a_compiler_that_fails_is_told_and_done_without(launch: Callable[..., Any]) -> None:
    """The run goes on with the next simpler backend."""
    ended = launch("-m", "rankscope.trainers.ddp", *TINY, CXX=str(shutil.which("false")))
    assert said(ended).startswith("blocks compiled with aot_eager: inductor failed (")

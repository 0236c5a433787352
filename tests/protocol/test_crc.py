"""The checksum of everything in a checkpoint."""

import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.protocol import crc


@given(st.binary(max_size=20_000), st.binary(max_size=200), st.integers(0, 40))
def test_every_library_says_what_zlib_says(head: bytes, tail: bytes, skipped: int) -> None:
    """Whatever it is of, in one go or in two, and wherever in memory it begins."""
    content = head + tail
    view = memoryview(content)[skipped:]
    expected = zlib.crc32(view)
    assert crc.crc32(view) == expected
    cut = len(head) // 2
    assert crc.crc32(view[cut:], crc.crc32(view[:cut])) == expected
    assert crc.crc32(bytearray(view)) == expected


def test_what_is_installed_with_torch_is_what_is_used() -> None:
    """zlib would take four times as long over a save."""
    pytest.importorskip("isal")
    assert crc.LIBRARY.name.startswith("isal ")
    assert (Path(crc.LIBRARY.found_in) / "isal").is_dir()


@pytest.mark.processes
@pytest.mark.parametrize(
    "theirs",
    [
        "raise ImportError",
        "raise SystemError('built for another machine')",
        "",
        "import sys, types; __version__ = '1'; it = types.ModuleType('isal.isal_zlib'); "
        "it.crc32 = lambda content, begun=0: 7; sys.modules['isal.isal_zlib'] = it",
    ],
    ids=["missing", "broken", "another", "wrong"],
)
def test_without_a_library_that_is_right_zlib_does_it(tmp_path: Path, theirs: str) -> None:
    """Whatever a module is that has its name."""
    (tmp_path / "isal.py").write_text(theirs)
    program = "from rankscope.protocol import crc; print(crc.LIBRARY.name, crc.crc32(b'123456789'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["zlib", str(0xCBF43926)], done.stderr

"""The arrows between the rooms, and who may use torch, zmq and textual."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("protocol", "agent", "hub", "trainers", "tui")
MAY_IMPORT = {
    "protocol": set(),
    "agent": {"protocol"},
    "hub": {"protocol"},
    "trainers": {"agent", "protocol"},
    "tui": {"protocol"},
}
LIBRARIES = {
    "torch": ("agent/", "trainers/"),
    # protocol/keys.py makes CURVE pairs, and nothing else there touches zmq.
    "zmq": ("agent/", "hub/", "tui/rankscope/tui/feed", "protocol/rankscope/protocol/keys.py"),
    "textual": ("tui/",),
    "numpy": ("hub/", "agent/", "trainers/"),
    "pynvml": ("agent/rankscope/agent/sentinel/", "tui/rankscope/tui/doctor"),
}


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """Full dotted names of everything a file imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_its_arrows_point_to(room: str) -> None:
    """trainers → agent → protocol ← hub, tui → protocol; nothing else."""
    allowed = MAY_IMPORT[room] | {room}
    for path in sorted((ROOT / room).rglob("*.py")):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("rankscope.")}
        assert used <= allowed, f"{path} imports {sorted(used - allowed)}"


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_a_library_stays_in_its_rooms(library: str) -> None:
    """The dashboard machine needs no torch, the training image no textual."""
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        if library in {name.split(".")[0] for name in imports(path)}:
            assert relative.startswith(LIBRARIES[library]), f"{relative} imports {library}"


def test_no_package_file_hides_the_rooms() -> None:
    """A rankscope/__init__.py in one room would hide the others."""
    assert not [room for room in ROOMS if (ROOT / room / "rankscope" / "__init__.py").exists()]


def test_every_room_holds_code() -> None:
    """The checks above would pass on empty folders."""
    for room in ROOMS:
        assert list((ROOT / room / "rankscope" / room).glob("*.py")), room

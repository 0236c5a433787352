"""Names of files: as much of each path as tells it from the others. Pure."""

from collections.abc import Iterable, Mapping


def told_apart(files: Iterable[str]) -> dict[str, str]:
    """For each path the shortest end of it that no other one of ``files`` has: ``train.py``, and
    ``src/model.py`` beside ``lib/model.py``."""
    parts = {file: file.replace("\\", "/").split("/") for file in files}
    names: dict[str, str] = {}
    open_, count = set(parts), 1
    while open_:
        ends: dict[str, list[str]] = {}
        for file in open_:
            ends.setdefault("/".join(parts[file][-count:]), []).append(file)
        for end, same in ends.items():
            if len(same) == 1 or all(len(parts[file]) <= count for file in same):
                names |= dict.fromkeys(same, end)
                open_ -= set(same)
        count += 1
    return names


def named(file: str, names: Mapping[str, str]) -> str:
    """``file`` as ``names`` call it; its last part where they do not know it."""
    return names.get(file) or file.replace("\\", "/").rpartition("/")[2]

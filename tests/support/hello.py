"""What a rank of a test says of itself first."""

from typing import Any


def hello_fields(
    run: str, world_size: int, local_rank: int, host: str, pid: int, **more: Any
) -> dict[str, Any]:
    """The fields of a ``Hello`` that hold no matter who sends it; ``more`` replaces any."""
    return {
        "run": run,
        "world_size": world_size,
        "local_rank": local_rank,
        "host": host,
        "pid": pid,
        "name": "t",
        "trainer": "ddp",
        "device": "cpu",
        "start_step": 0,
        "boundary": False,
        "facts": {},
        **more,
    }

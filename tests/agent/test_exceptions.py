"""What is told of an exception: where in the user's code, in which phase, and whose fault it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from rankscope.agent.probes.batches import timed
from rankscope.agent.probes.exceptions import describe, is_from_peer, source_of
from rankscope.agent.switch import one_line
from rankscope.protocol import limits
from rankscope.protocol.messages import Phase


def caught(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [::1]"


@pytest.mark.parametrize(
    ("error", "from_peer"),
    [
        (RuntimeError(GLOO), True),
        (
            RuntimeError("[..gloo/transport/tcp/pair.cc:544] Read error: Connection reset by peer"),
            True,
        ),
        (RuntimeError("gloo/buffer.cc:81] Timed out waiting 1800000ms for recv operation"), True),
        (RuntimeError("NCCL error: remote process exited or there was a network error"), True),
        (RuntimeError("[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(…)"), True),
        (RuntimeError("Gloo connectFullMesh failed with timed out connecting: refused"), True),
        (torch.distributed.DistNetworkError("failed to recv, got 0 bytes"), True),
        (ConnectionResetError(104, "Connection reset by peer"), False),  # the dataset's server
        (RuntimeError("Connection reset by peer"), False),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError(GLOO), False),
    ],
)
def test_whose_fault_an_error_is(error: BaseException, from_peer: bool) -> None:
    """Only what a collective says about a lost peer makes a rank a victim."""
    assert is_from_peer(error) is from_peer


def test_the_source_is_the_users_innermost_line() -> None:
    """Frames of torch below the user's do not hide where the user called it."""

    def mine() -> None:
        torch.nn.Linear(2, 2)(torch.ones(1, 3))

    error = caught(mine)
    fields = describe(error)
    assert fields["source"].startswith(f"{Path(__file__).name}:")
    assert fields["source"].endswith(" in mine")
    assert fields["type"] == "RuntimeError"
    assert fields["phase"] is Phase.FORWARD
    assert source_of(None) == ""


def test_the_phase_is_read_off_the_stack() -> None:
    """By the time an exception ends the run its phase has ended; the traceback still shows it."""

    class Broken(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            raise OSError("no disk")

    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            raise ValueError("no gradient")

    def backward() -> None:
        x = torch.ones(1, requires_grad=True)
        y: Any = Refuses.apply(x)  # type: ignore[no-untyped-call]
        y.backward()

    def optimizer() -> None:
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.grad = torch.ones(2)
        sgd: Any = torch.optim.SGD([parameter], lr=0.1)
        sgd.param_groups[0]["lr"] = "much"
        sgd.step()

    loader: Any = torch.utils.data.DataLoader(Broken())
    assert describe(caught(list, loader))["phase"] is Phase.DATA
    assert describe(caught(backward))["phase"] is Phase.BACKWARD
    assert describe(caught(optimizer))["phase"] is Phase.OPTIMIZER
    assert "phase" not in describe(caught(int, "x"))


def test_a_huge_exception_fits_into_its_message() -> None:
    """A long message and an endless recursion are cut, and the end of the traceback is kept."""

    def deep(depth: int) -> None:
        if not depth:
            raise ValueError("x" * 100_000)
        deep(depth - 1)

    fields = describe(caught(deep, 300))
    assert len(fields["message"]) <= limits.MAX_TEXT_CHARS
    assert len(fields["traceback"]) <= limits.MAX_TRACEBACK_CHARS
    assert fields["traceback"].endswith("x\n")


def test_an_exception_that_cannot_be_shown_is_still_told() -> None:
    """A failing __str__ costs the message only."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail() -> None:
        raise Mute

    fields = describe(caught(fail))
    assert fields["type"] == "Mute"
    assert "cannot be shown" in fields["message"]
    assert "cannot be shown" in one_line(Mute())


def test_sys_exit_is_told_with_its_code() -> None:
    """An early exit says how it was called."""
    assert describe(caught(exit, 3))["message"] == "sys.exit(3)"


def test_a_loader_of_the_users_own_fails_in_data() -> None:
    """``agent.batches`` around a generator: its exception was raised while data was awaited."""

    class Untimed:
        def begin(self) -> None: ...
        def end(self) -> None: ...

    def loader() -> Iterator[int]:
        raise ValueError("no batch")
        yield 0

    batches: Any = timed(loader(), cast(Any, Untimed()))
    assert describe(caught(next, batches))["phase"] is Phase.DATA

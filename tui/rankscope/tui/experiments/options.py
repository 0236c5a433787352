"""What ``compare`` and ``scale`` have in common on the command line."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.protocol.exits import UserError
from rankscope.protocol.experiments import UPDATES_COUNTED, Case, Job
from rankscope.tui.arguments import OneLineParser, add_json, number
from rankscope.tui.words.quantities import parse_bytes

MOST = 1 << 20
MOST_CASES = 64


def add_model(parser: OneLineParser) -> None:
    for name, default, what in (
        ("dim", 128, "width of the model"),
        ("heads", 4, "attention heads"),
        ("seq-len", 128, "tokens a sequence"),
    ):
        parser.add_argument(
            f"--{name}",
            type=number(1, MOST),
            default=default,
            metavar="N",
            help=f"{what} ({default})",
        )


def add_run(parser: OneLineParser, updates: int) -> None:
    parser.add_argument(
        "--updates",
        type=number(2, 100_000),
        default=updates,
        metavar="N",
        help=f"updates that are timed ({updates})",
    )
    parser.add_argument(
        "--warmup",
        type=number(1, 10_000),
        default=3,
        metavar="N",
        help="updates before them, after the counted ones (3)",
    )
    parser.add_argument("--text", type=Path, metavar="PATH", help="train on this file or folder")
    parser.add_argument("--seed", type=number(0, 1 << 31), default=0, metavar="N")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add_json(parser)


def several(read: Callable[[str], object], what: str) -> Callable[[str], list[object]]:
    """An argparse type: what ``read`` takes, several of them with commas between, none twice."""

    def parse(text: str) -> list[object]:
        parts = [part.strip() for part in text.split(",")]
        try:
            values = [read(part) for part in parts]
        except (ValueError, ArgumentTypeError) as error:
            told = str(error) if isinstance(error, ArgumentTypeError) else f"{text!r} is not {what}"
            raise ArgumentTypeError(told) from None
        if len(set(values)) != len(values):
            raise ArgumentTypeError(f"{text!r} names one twice")
        return values

    return parse


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ArgumentTypeError(f"there is no {text!r}; there are {', '.join(choices)}")
        return text

    return read


def size(text: str) -> float:
    """An argparse type: bytes, at least one."""
    try:
        value = parse_bytes(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value < 1:
        raise ArgumentTypeError(f"{text} is not at least 1 byte")
    return value


def check_model(given: Namespace) -> None:
    """Raise :class:`UserError` for a model there cannot be, or a text that is not there."""
    if given.dim % given.heads:
        raise UserError(
            f"--dim {given.dim} does not divide into --heads {given.heads}; use a multiple"
        )
    if given.text is not None and not given.text.exists():
        raise UserError(f"--text {given.text}: no such file or folder")


def job(
    given: Namespace, cases: list[Case], limit_bytes: float | None = None, *, predict: bool = True
) -> Job:
    """``cases`` as often as the command line says."""
    untimed = UPDATES_COUNTED + given.warmup
    return Job(
        cases=cases,
        updates=untimed + given.updates,
        untimed=untimed,
        limit_bytes=None if limit_bytes is None else int(limit_bytes),
        predict=predict,
        seed=given.seed,
        text=None if given.text is None else str(given.text.absolute()),
        device=given.device,
    )

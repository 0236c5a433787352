"""``rankscope budget``: what a model's training state takes, and the largest that fits."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from rankscope.protocol.exits import Exit, UserError
from rankscope.tui.arguments import OneLineParser, add_json, number
from rankscope.tui.words.quantities import parse_bytes, parse_count

HELP = "the memory table: what each way of spreading a model takes, and the largest that fits"

INVENTORY = "2,2,12"


def options(parser: OneLineParser) -> None:
    parser.add_argument("params", metavar="PARAMETERS", type=_count, help="such as 7e9 or 7B")
    parser.add_argument(
        "--ranks", type=number(1, 1 << 20), default=8, metavar="N", help="ranks (default 8)"
    )
    parser.add_argument("--shard", type=number(1), metavar="N", help="ranks in a hybrid's group")
    parser.add_argument("--device", type=_bytes, metavar="SIZE", help="one device, such as 40GB")
    for name, what in (
        ("activation", "activations of a step"),
        ("gather", "the largest group of parameters gathered at once"),
        ("other", "anything else"),
    ):
        parser.add_argument(f"--{name}", type=_bytes, metavar="SIZE", help=what)
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="take activations and gathers from what `rankscope compare --json` measured",
    )
    parser.add_argument(
        "--bytes",
        type=_inventory,
        default=_inventory(INVENTORY),
        metavar="P,G,O",
        help=f"bytes a parameter: parameter, gradient, optimizer (default {INVENTORY})",
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import budget, jsontext
    from rankscope.tui.experiments.terms import measured_terms
    from rankscope.tui.text.budget import budget_text
    from rankscope.tui.text.output import write

    inventory = budget.Inventory(*given.bytes)
    activation, gather = given.activation or 0.0, given.gather or 0.0
    if given.measured is not None:
        known = measured_terms(given.measured)
        activation = known.activation if given.activation is None else activation
        gather = known.gather if given.gather is None else gather
    extra = budget.Extra(activation, gather, given.other or 0.0)
    try:
        found = budget.table(
            given.params,
            given.ranks,
            inventory=inventory,
            extra=extra,
            device_bytes=given.device,
            shard=given.shard,
        )
    except ValueError as error:
        raise UserError(f"{error}; choose --shard so that it does") from None
    if max(*found["peak_bytes"].values(), *found["sent_bytes"].values()) == float("inf"):
        raise UserError("these come to more bytes than can be counted; are the numbers right?")
    if given.device is not None and not any(found["largest_params"].values()):
        raise UserError("nothing fits: the device is smaller than --activation and --other alone")
    if given.json:
        print(jsontext.dumps(found))
    else:
        lines = budget_text(
            found, given.params, given.ranks, inventory, given.device, given.shard, extra
        )
        write(lines)
    return Exit.FINE


def _count(text: str) -> float:
    return _read(parse_count, text, least=1)


def _bytes(text: str) -> float:
    return _read(parse_bytes, text, least=0)


def _read(parse: Callable[[str], float], text: str, least: float) -> float:
    try:
        value = parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value < least:
        raise ArgumentTypeError(f"{text} is not at least {least:g}")
    return value


def _inventory(text: str) -> tuple[float, ...]:
    parts = text.split(",")
    values = tuple(_read(float, part, least=0) for part in parts)
    if len(values) != 3 or not 0 < sum(values) < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not three numbers such as {INVENTORY}")
    return values

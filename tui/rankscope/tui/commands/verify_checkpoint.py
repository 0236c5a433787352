"""``rankscope verify-checkpoint``: whether a checkpoint on disk is whole."""

from argparse import Namespace
from pathlib import Path

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json

HELP = "receipts, coverage and checksums of a checkpoint: is it whole?"


def options(parser: OneLineParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="of one checkpoint")
    parser.add_argument(
        "--no-checksums", action="store_true", help="look at names and sizes only, which is fast"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import checkpoints, jsontext
    from rankscope.tui.text.checkpoint import verified_text
    from rankscope.tui.text.output import write

    found = checkpoints.verify(given.directory, checksums=not given.no_checksums)
    if given.json:
        print(jsontext.dumps(found))
    else:
        write(verified_text(found))
    return Exit.FINE if found.state == "complete" else Exit.PROBLEM

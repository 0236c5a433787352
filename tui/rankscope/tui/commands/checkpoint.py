"""``rankscope checkpoint``: have all ranks save, at the same step, while they train on."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser, add_json, add_run, number

HELP = "have the ranks save a checkpoint at their next step"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    parser.add_argument("--no-wait", action="store_true", help="return once it is asked for")
    parser.add_argument(
        "--timeout", type=number(1), default=600, metavar="SECONDS", help="to wait for it"
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol.exits import Exit, UserError
    from rankscope.tui import saving, source
    from rankscope.tui.text.output import write
    from rankscope.tui.text.saving import outcome_line

    with source.open_client(given) as client:
        reply = client.command("checkpoint", author=saving.author())
        if not reply.accepted:
            raise UserError(reply.text, Exit.PROBLEM)
        if given.no_wait:
            if given.json:
                print(saving.document(reply.reference, None))
            else:
                write([reply.text])
            return Exit.FINE
        outcome = saving.await_outcome(client, reply.reference, given.timeout)
    if given.json:
        print(saving.document(reply.reference, outcome))
    else:
        write([outcome_line(outcome)])
    return Exit.FINE if outcome.ok else Exit.PROBLEM

"""The kinds of message: the number of each, its type, and which role's key may send it."""

from enum import IntEnum

from rankscope.protocol.messages.base import Message
from rankscope.protocol.messages.beat import Beat
from rankscope.protocol.messages.clients import CommandReply, CommandRequest, ViewReply, ViewRequest
from rankscope.protocol.messages.collectives import Groups, Operations
from rankscope.protocol.messages.control import Controlled, Order, Saving
from rankscope.protocol.messages.hello import Goodbye, Hello, ProbeFault, Raised
from rankscope.protocol.messages.hub import Inquire, Ping, Pong, Refused, RunEnd, RunOver, WhoAreYou
from rankscope.protocol.messages.numerics import Checksums, ParameterNorms, Signs
from rankscope.protocol.messages.sentinel import ForeignStacks, NodeHello, NodeReport, ProcessEnded
from rankscope.protocol.messages.stacks import Stacks


class Kind(IntEnum):
    """The message kinds: the fourth byte of a frame."""

    HELLO = 1
    BEAT = 2
    GROUPS = 3
    RAISED = 4
    PROBE_FAULT = 5
    GOODBYE = 6
    SIGNS = 7
    CHECKSUMS = 8
    PARAMETER_NORMS = 9
    STACKS = 10
    OPERATIONS = 11
    SAVING = 12
    CONTROLLED = 13

    NODE_HELLO = 16
    NODE_REPORT = 17
    PROCESS_ENDED = 18
    FOREIGN_STACKS = 19

    RUN_END = 24

    VIEW_REQUEST = 32
    COMMAND_REQUEST = 33

    PING = 40

    PONG = 64
    VIEW_REPLY = 65
    COMMAND_REPLY = 66
    REFUSED = 67
    WHO_ARE_YOU = 68
    RUN_OVER = 69
    INQUIRE = 70
    ORDER = 71


TYPES: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.BEAT: Beat,
    Kind.GROUPS: Groups,
    Kind.RAISED: Raised,
    Kind.PROBE_FAULT: ProbeFault,
    Kind.GOODBYE: Goodbye,
    Kind.SIGNS: Signs,
    Kind.CHECKSUMS: Checksums,
    Kind.PARAMETER_NORMS: ParameterNorms,
    Kind.STACKS: Stacks,
    Kind.OPERATIONS: Operations,
    Kind.SAVING: Saving,
    Kind.CONTROLLED: Controlled,
    Kind.NODE_HELLO: NodeHello,
    Kind.NODE_REPORT: NodeReport,
    Kind.PROCESS_ENDED: ProcessEnded,
    Kind.FOREIGN_STACKS: ForeignStacks,
    Kind.RUN_END: RunEnd,
    Kind.VIEW_REQUEST: ViewRequest,
    Kind.COMMAND_REQUEST: CommandRequest,
    Kind.PING: Ping,
    Kind.PONG: Pong,
    Kind.VIEW_REPLY: ViewReply,
    Kind.COMMAND_REPLY: CommandReply,
    Kind.REFUSED: Refused,
    Kind.WHO_ARE_YOU: WhoAreYou,
    Kind.RUN_OVER: RunOver,
    Kind.INQUIRE: Inquire,
    Kind.ORDER: Order,
}

KINDS: dict[type[Message], Kind] = {message: kind for kind, message in TYPES.items()}

ROLES: dict[str, frozenset[Kind]] = {
    "agent": frozenset(kind for kind in Kind if kind < Kind.VIEW_REQUEST) | {Kind.PING},
    "operator": frozenset({Kind.VIEW_REQUEST, Kind.COMMAND_REQUEST, Kind.PING}),
    "viewer": frozenset({Kind.VIEW_REQUEST, Kind.PING}),
}
"""What each role's key may send to the hub."""

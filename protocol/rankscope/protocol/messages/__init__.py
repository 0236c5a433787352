"""The typed messages of the wire. SPEC.md is the authority; this package is its Python form.

Every message is a MessagePack array whose fields stand in the order in which they are written
here. A field is only ever added at the end, with a default, so that older and newer peers read
each other.

Times called ``t_s`` are the sender's own monotonic clock in seconds: they are compared with each
other, never with another machine's. Sizes are bytes, durations seconds.
"""

from rankscope.protocol.messages.base import (
    Bytes,
    Count,
    FromNode,
    FromRank,
    Message,
    Name,
    Rank,
    Text,
    Traceback,
)
from rankscope.protocol.messages.beat import Beat, LateValues, Memory, Phase, StepRecord
from rankscope.protocol.messages.clients import CommandReply, CommandRequest, ViewReply, ViewRequest
from rankscope.protocol.messages.collectives import (
    CollectiveStatus,
    Group,
    Groups,
    Operation,
    Operations,
)
from rankscope.protocol.messages.control import Controlled, Order, Saving
from rankscope.protocol.messages.hello import Goodbye, Hello, ProbeFault, Raised
from rankscope.protocol.messages.hub import Inquire, Ping, Pong, Refused, RunEnd, RunOver, WhoAreYou
from rankscope.protocol.messages.kinds import KINDS, ROLES, TYPES, Kind
from rankscope.protocol.messages.numerics import (
    Checksum,
    Checksums,
    ParameterNorm,
    ParameterNorms,
    Sign,
    Signs,
    Stage,
)
from rankscope.protocol.messages.sentinel import (
    ForeignStacks,
    GpuSample,
    NodeHello,
    NodeReport,
    ProcessEnded,
    ProcessSample,
)
from rankscope.protocol.messages.stacks import Frame, Stacks, Thread

__all__ = [
    "KINDS",
    "ROLES",
    "TYPES",
    "Beat",
    "Bytes",
    "Checksum",
    "Checksums",
    "CollectiveStatus",
    "CommandReply",
    "CommandRequest",
    "Controlled",
    "Count",
    "ForeignStacks",
    "Frame",
    "FromNode",
    "FromRank",
    "Goodbye",
    "GpuSample",
    "Group",
    "Groups",
    "Hello",
    "Inquire",
    "Kind",
    "LateValues",
    "Memory",
    "Message",
    "Name",
    "NodeHello",
    "NodeReport",
    "Operation",
    "Operations",
    "Order",
    "ParameterNorm",
    "ParameterNorms",
    "Phase",
    "Ping",
    "Pong",
    "ProbeFault",
    "ProcessEnded",
    "ProcessSample",
    "Raised",
    "Rank",
    "Refused",
    "RunEnd",
    "RunOver",
    "Saving",
    "Sign",
    "Signs",
    "Stacks",
    "Stage",
    "StepRecord",
    "Text",
    "Thread",
    "Traceback",
    "ViewReply",
    "ViewRequest",
    "WhoAreYou",
]

"""The shapes of views and reports: what clients get, and what ``--json`` prints.

They travel as MessagePack maps inside a ``ViewReply`` and are printed as JSON by
:mod:`rankscope.protocol.jsontext`. Keys are only ever added. None means unknown. Ages (``*_s``)
are as of the reply's ``hub_s``; a client that keeps a row adds the hub time gone since.
"""

from rankscope.protocol.shapes.base import Link, Severity, Shape, State
from rankscope.protocol.shapes.checkpoints import (
    Checkpoint,
    CheckpointsView,
    Resumed,
    SaveOutcome,
    SaveRow,
)
from rankscope.protocol.shapes.collectives import Analysis, CollectiveRow, Collectives
from rankscope.protocol.shapes.control import Command, Paused
from rankscope.protocol.shapes.drill import DrillRow, Injected
from rankscope.protocol.shapes.finding import HANGS, SEVERITIES, STANDS, Finding
from rankscope.protocol.shapes.incidents import Incident, Incidents
from rankscope.protocol.shapes.memory import MemoryRow, MemoryView
from rankscope.protocol.shapes.numerics import Numerics, NumericsRow, ParameterRow, SignRow
from rankscope.protocol.shapes.overview import Gpu, History, Node, NodesInShort, Overview
from rankscope.protocol.shapes.parity import Parity, ParityDifference
from rankscope.protocol.shapes.ranks import GroupRow, RankDetail, RankRow
from rankscope.protocol.shapes.recording import Moment, Recording
from rankscope.protocol.shapes.stacks import FrameRow, StackGroup, StacksView
from rankscope.protocol.shapes.status import Status
from rankscope.protocol.shapes.steps import StepAnomaly, StepsRow, StepsView
from rankscope.protocol.shapes.views import VIEWS

__all__ = [
    "HANGS",
    "SEVERITIES",
    "STANDS",
    "VIEWS",
    "Analysis",
    "Checkpoint",
    "CheckpointsView",
    "CollectiveRow",
    "Collectives",
    "Command",
    "DrillRow",
    "Finding",
    "FrameRow",
    "Gpu",
    "GroupRow",
    "History",
    "Incident",
    "Incidents",
    "Injected",
    "Link",
    "MemoryRow",
    "MemoryView",
    "Moment",
    "Node",
    "NodesInShort",
    "Numerics",
    "NumericsRow",
    "Overview",
    "ParameterRow",
    "Parity",
    "ParityDifference",
    "Paused",
    "RankDetail",
    "RankRow",
    "Recording",
    "Resumed",
    "SaveOutcome",
    "SaveRow",
    "Severity",
    "Shape",
    "SignRow",
    "StackGroup",
    "StacksView",
    "State",
    "Status",
    "StepAnomaly",
    "StepsRow",
    "StepsView",
]

"""Every size limit of the wire and of the files beside it, with the reason for its size."""

MAX_INBOUND_FRAME_BYTES = 64 * 1024
"""Largest frame the hub accepts. The largest honest one is an exception with its traceback."""

MAX_REPLY_FRAME_BYTES = 16 * 1024 * 1024
"""Largest frame a client accepts: 16,384 rank rows take about 4 MiB."""

MAX_WORLD_SIZE = 1 << 20
MAX_COUNT = (1 << 63) - 1
MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 4096
MAX_TRACEBACK_CHARS = 16 * 1024
MAX_STEPS_PER_BEAT = 64
MAX_GROUPS = 256
MAX_GROUP_RANKS = 8192
MAX_FACTS = 64
MAX_PROCESSES_PER_NODE = 1000
MAX_GPUS_PER_NODE = 64
MAX_SIGNS = 64
MAX_CHECKSUMS = 512
MAX_PARAMETERS = 512
MAX_THREADS = 64
MAX_FRAMES = 128
MAX_OPERATIONS = 256

BEAT_INTERVAL_S = 0.5
"""A rank says something at least this often, also when nothing has changed."""

SEGMENT_BYTES = 8 * 1024 * 1024
"""A recording's segment; each starts with a snapshot, so a restarted hub reads at most one."""

MAX_SEGMENTS = 32
"""A recording keeps at most this many segments (256 MiB); the oldest goes first."""

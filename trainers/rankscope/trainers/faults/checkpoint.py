"""Faults while a checkpoint is saved. There is no checkpointer yet to inject them into.

The points at which they will strike:

``staging``
    the rank copies its state; training waits
``writing``
    its part is written in the background: ``write-fails`` and ``disk-full`` raise here,
    ``killed-in-save`` and ``stopped-in-save`` strike here
``publishing``
    rank 0 compares the receipts and renames

``rankscope.protocol.faulttable`` says of each that it needs the checkpointer, so that asking for
one is refused in words.
"""

POINTS = ("staging", "writing", "publishing")

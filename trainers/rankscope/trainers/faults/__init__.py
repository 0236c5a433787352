"""Faults on purpose, apart from the trainers' own logic: ``--fault FAULT@rank:step[:where]``.

One file for each family; :mod:`rankscope.trainers.faults.catalogue` names them all. Without
``--fault`` none of this is loaded. A rank that goes wrong says so in ``--fault-log`` just before,
which only a drill reads: nothing of it reaches the agent or the hub.
"""

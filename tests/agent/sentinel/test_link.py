"""The sentinel's socket: a hub that is new hears first who speaks."""

import pytest

from rankscope.agent.sentinel.link import Link
from rankscope.protocol.messages import RunEnd
from support.noderouter import NodeRouter
from support.wire import wait_until

pytestmark = pytest.mark.processes


def test_nothing_is_sent_to_a_hub_that_was_not_met() -> None:
    """What was due while it was away does not slip out before a hello."""
    word = RunEnd(0)
    with NodeRouter() as hub:
        link = Link(hub.endpoint, hub.key)
        try:
            assert not link.send(word)
            wait_until(lambda: not link.send(word) and link._met, "the first connection")
            assert not link.send(word)
            assert link.met()
            assert not link.met()
            assert link.send(word)
            hub.away()
            wait_until(lambda: not link.send(word), "the loss of the connection")
            hub.back()
            wait_until(lambda: not link.send(word) and link._met, "another connection")
            assert not link.send(word)
            assert link.met()
            assert link.send(word)
        finally:
            link.close()

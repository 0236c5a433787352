"""The newest snapshot, and only that, passes from the feed's thread to the screen."""

import threading

from rankscope.tui.dashboard.mailbox import Mailbox


def test_the_latest_wins() -> None:
    """What was not taken is replaced, and taken once."""
    mailbox: Mailbox[int] = Mailbox()
    mailbox.put(1)
    mailbox.put(2)
    assert mailbox.take() == 2
    assert mailbox.take() is None


def test_the_feed_waits_for_the_screen() -> None:
    """A put returns when the item was taken: a slow terminal is asked for less often."""
    mailbox: Mailbox[int] = Mailbox()
    noticed = threading.Event()
    mailbox.listen(noticed.set)
    feed = threading.Thread(target=mailbox.put, args=(7,))
    feed.start()
    assert noticed.wait(60)
    assert feed.is_alive()
    assert mailbox.take() == 7
    feed.join(60)
    assert not feed.is_alive()


def test_a_screen_that_leaves_lets_the_feed_go() -> None:
    """Nobody waits for a dashboard that is closing."""
    mailbox: Mailbox[int] = Mailbox()
    noticed = threading.Event()
    mailbox.listen(noticed.set)
    feed = threading.Thread(target=mailbox.put, args=(7,))
    feed.start()
    assert noticed.wait(60)
    mailbox.listen(None)
    feed.join(60)
    assert not feed.is_alive()
    mailbox.put(8)

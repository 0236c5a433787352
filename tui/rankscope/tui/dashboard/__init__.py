"""The full-screen dashboard. It holds no truth: it draws the feed's newest snapshot."""

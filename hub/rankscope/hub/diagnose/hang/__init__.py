"""What the verdicts about hangs have in common."""

"""What works on this machine, checked by trying it."""

"""Pure drawing: what is known and a width in, lines of styled text out. No terminal here."""

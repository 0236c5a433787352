"""The screens as plain text, for pipes and for people: pure, 80 columns, no escapes."""

"""The thin edge to Textual."""

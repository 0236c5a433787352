"""How numbers and states are put into words: shared by the screens and the printed text. Pure."""

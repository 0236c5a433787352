"""What an operator asks for, agreed on by the ranks and done at one boundary of all of them."""

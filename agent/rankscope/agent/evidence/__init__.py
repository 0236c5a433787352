"""What a rank can say of itself when it does not move: its stacks and its collectives."""

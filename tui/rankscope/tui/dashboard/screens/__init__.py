"""What each screen shows and how one moves on it. They know no terminal."""

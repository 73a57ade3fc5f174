"""What an operator can set: typed sections, loading, defaults."""

"""What model calls cost and may cost."""

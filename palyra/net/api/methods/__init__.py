"""What clients can ask for: one module per noun, one table."""

"""Memory: its items, what a question asks for, how items are ranked, workspace documents."""

"""Memory: its items, what a question asks for, how items are ranked, and which are recalled."""

"""Memory: what a question asks for, how memories are ranked, and which are recalled."""

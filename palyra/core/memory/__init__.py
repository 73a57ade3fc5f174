"""Memory: items, duplicates and corrections, and the text a search sees."""

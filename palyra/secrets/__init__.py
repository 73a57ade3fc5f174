"""Secrets by reference: where they are kept, how they are found, and that the redactor hears of it."""

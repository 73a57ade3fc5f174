"""Secrets by reference: the vault, reference resolution, and registration with the redactor."""

"""The rules, in Cedar."""

"""A conversation: queue, forks, commands that reach it."""

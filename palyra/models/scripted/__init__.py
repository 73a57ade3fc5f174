"""Model without a provider: scripts, directives in the user's text, and their player."""

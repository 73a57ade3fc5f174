"""The model without a provider: script, directives in the text, player."""

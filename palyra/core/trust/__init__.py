"""Where a text comes from: labels, fences, injection scan."""

"""Origin of texts: trust labels, fences, injection scan."""

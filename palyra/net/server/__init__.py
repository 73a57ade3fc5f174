"""From an accepted socket to a transport of whole messages."""

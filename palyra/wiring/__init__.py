"""One builder a capability; the only code beside daemon.py that sees adapters and actors together."""

"""Configuration of the daemon: typed sections, defaults, loading."""

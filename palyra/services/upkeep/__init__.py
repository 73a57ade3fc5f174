"""The daemon's own state: incidents, healing, admission, configuration, log."""

"""Pages and metrics; loaded by the first HTTP request."""

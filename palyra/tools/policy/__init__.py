"""Policy engine: rules written in Cedar."""

"""Who watches what: fan-out of events and progress."""

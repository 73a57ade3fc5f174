"""One connection: its requests, its answers, its news."""

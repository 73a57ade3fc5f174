"""Palyra, a self-hosted agent daemon on structured concurrency."""

__version__ = "0.1.0"

"""One builder for each capability; besides daemon.py, only this code imports adapters and actors."""

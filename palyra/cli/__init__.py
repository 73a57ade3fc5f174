"""The command line: a client of `palyra.net` like any other."""

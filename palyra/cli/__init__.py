"""Command line of Palyra, an ordinary client of `palyra.net`."""

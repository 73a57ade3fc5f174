"""Command line of Palyra, an ordinary user of `palyra.client`."""

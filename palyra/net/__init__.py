"""The edge to clients: sockets, the protocol, pages."""

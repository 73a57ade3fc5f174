"""The edge to clients: sockets, the protocol, the client library."""

"""What clients see: sockets, the protocol, the client library."""

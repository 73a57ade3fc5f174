"""Model Context Protocol client: external servers whose tools join the catalogue as untrusted.

`server` is the actor of one server.  `transport` defines the connection to it, of two kinds: a
child process (`stdio_server`), in the sandbox unless the configuration disables it, or a URL
(`streamable_http`).  The package `mcp` is an extra (`palyra[mcp]`) whose import takes about two
seconds, so it is imported when the first server starts.
"""

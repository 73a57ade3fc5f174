"""Servers of the Model Context Protocol: their tools, called like our own, believed like strangers.

`server` is the actor of one server; `link` is how it is reached: a process (`process`), in the jail
unless the configuration says otherwise, or an address (`web`).  The package `mcp` is an extra
(`palyra[mcp]`) that takes two seconds to import, so it is imported when the first server starts.
"""

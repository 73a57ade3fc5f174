"""Equipment of all commands: options, output, errors, names, the connection to the daemon."""

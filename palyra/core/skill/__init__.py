"""Skills as data: manifest and package; read by the store, the tools, the API and the command line."""

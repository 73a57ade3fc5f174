"""Skills as data: manifest and package; used by the store, the tools, the API and the CLI."""

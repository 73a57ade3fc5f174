"""May a call run: request to the rules, validation, gate, grants."""

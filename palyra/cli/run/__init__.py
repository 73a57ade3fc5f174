"""`palyra run` and what `chat` shares with it: questions, options, printing."""

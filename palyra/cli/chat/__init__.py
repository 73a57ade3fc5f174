"""`palyra chat`: the conversation, its commands, the terminal."""

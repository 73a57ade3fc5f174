"""One run as a task, with its turn, tool calls and approvals as children."""

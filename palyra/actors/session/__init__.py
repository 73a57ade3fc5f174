"""One conversation as a task: queue, its runs, recovery at start."""

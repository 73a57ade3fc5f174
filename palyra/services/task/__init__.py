"""Background tasks: queue, schedules."""

"""Background tasks and schedules: their life, their order, their instants."""

"""Language models as data: messages, images, options, routing, circuit breaker."""

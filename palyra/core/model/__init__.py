"""Language models as data: messages, images, request options, routing, circuit breaker."""

"""Self-healing: who is stuck, which remedy fits, and when to give up."""

"""Commands about the daemon of this machine: start, service, doctor, demo, watch."""

"""Learning: candidates, procedures, suggestions of policy."""

"""Tools and calls as data: specification, arguments, facts for policy, attestation, kept outputs."""

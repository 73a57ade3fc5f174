"""The protocol, shared by both ends: JSON-RPC, results, notifications, close codes, discovery."""

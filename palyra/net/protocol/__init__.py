"""The protocol as both ends know it: JSON-RPC, results, notifications, close codes, discovery."""

"""Language-model adapters."""

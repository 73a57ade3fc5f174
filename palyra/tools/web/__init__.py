"""HTTP requests on behalf of a model: checked before sending, with bounded responses."""

"""Methods of the protocol: one module per noun, and the table of all."""

"""Effects on the world for the model: tools and the policy that gates them."""

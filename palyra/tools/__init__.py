"""What touches the world for the model: tools and the policy that gates them."""

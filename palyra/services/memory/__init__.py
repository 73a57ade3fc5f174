"""Memory: items, search, recall, embeddings, documents."""

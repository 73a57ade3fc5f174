"""MiniLM (all-MiniLM-L6-v2): sentence embeddings on this machine, without a provider or torch.

`files` finds, checks and installs the weights, `wordpiece` splits text into tokens, `encoder`
computes vectors with numpy.  Nothing here imports numpy before the first text is embedded.
"""

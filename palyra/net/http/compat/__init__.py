"""HTTP APIs for SDKs of other vendors: chat completions, responses, messages, embeddings.

Every request for an answer of a model is an ordinary run: the gateway starts it, and its rows come
from the hub.  docs/openai.md says
what each parameter does.  Imported with the first request for one of its paths.
"""

"""The HTTP surface other people's SDKs speak: chat completions, responses, messages, embeddings.

Every request that asks a model is an ordinary run, started through the gateway and followed
through the hub like any other; nothing here has a way of its own to either.  docs/openai.md says
what each parameter does.  Imported with the first request for one of its paths.
"""

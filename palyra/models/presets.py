"""Providers known by their names: address, dialect and place of the key.

Imports no HTTP client, so that commands and a daemon without providers may read it.
"""

import msgspec

from palyra.config.sections import Api, ModelProvider

AWS_KEY = "env:AWS_SECRET_ACCESS_KEY"  # where every tool of AWS looks for it


class Preset(msgspec.Struct, frozen=True):
    """Defaults of a provider known by its name."""

    base_url: str  # "": it has to be configured; {region} is the provider's region
    api: Api = "chat"
    model: str = ""  # suggested when the provider is added
    key: str = ""  # reference; "": the provider needs no key


PRESETS: dict[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "chat", "gpt-5-mini", "env:OPENAI_API_KEY"),
    "anthropic": Preset(
        "https://api.anthropic.com/v1", "anthropic", "claude-haiku-4-5", "env:ANTHROPIC_API_KEY"
    ),
    "gemini": Preset(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini",
        "gemini-2.5-flash",
        "env:GEMINI_API_KEY",
    ),
    "bedrock": Preset(
        "https://bedrock-runtime.{region}.amazonaws.com",
        "bedrock",
        "global.anthropic.claude-haiku-4-5-20251001-v1:0",
        "env:AWS_BEARER_TOKEN_BEDROCK",
    ),
    "azure": Preset("", "azure", key="env:AZURE_OPENAI_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "chat", key="env:OPENROUTER_API_KEY"),
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    "llamacpp": Preset("http://127.0.0.1:8080/v1"),
    "vllm": Preset("http://127.0.0.1:8000/v1"),
}


def key_of(provider: ModelProvider) -> str:
    """Return the reference to the provider's key, "" if it needs none."""
    preset = PRESETS.get(provider.name)
    usual = AWS_KEY if provider.key_id else "" if preset is None else preset.key
    return provider.key or usual

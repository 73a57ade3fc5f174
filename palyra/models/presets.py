"""Providers known by their names: address, dialect and place of the key.

Imports no HTTP client, so that commands and a daemon without providers may read it.
"""

from typing import Literal

import msgspec

from palyra.config.sections import ModelProvider

Api = Literal["chat", "responses", "anthropic", "gemini", "azure", "bedrock"]


AWS_KEY = "env:AWS_SECRET_ACCESS_KEY"  # where every tool of AWS looks for it


class Preset(msgspec.Struct, frozen=True):
    """Defaults of a provider known by its name."""

    base_url: str  # "": it has to be configured; {region} is the provider's region
    api: Api = "chat"
    key: str = ""  # reference; "": the provider needs no key
    model: str = ""  # suggested when the provider is added


PRESETS: dict[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "chat", "env:OPENAI_API_KEY", "gpt-5-mini"),
    "anthropic": Preset(
        "https://api.anthropic.com/v1", "anthropic", "env:ANTHROPIC_API_KEY", "claude-haiku-4-5"
    ),
    "gemini": Preset(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini",
        "env:GEMINI_API_KEY",
        "gemini-2.5-flash",
    ),
    "bedrock": Preset(
        "https://bedrock-runtime.{region}.amazonaws.com",
        "bedrock",
        "env:AWS_BEARER_TOKEN_BEDROCK",
        "global.anthropic.claude-haiku-4-5-20251001-v1:0",
    ),
    "azure": Preset("", "azure", "env:AZURE_OPENAI_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "chat", "env:OPENROUTER_API_KEY"),
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    "llamacpp": Preset("http://127.0.0.1:8080/v1"),
    "vllm": Preset("http://127.0.0.1:8000/v1"),
}


def key_of(provider: ModelProvider) -> str:
    """Return the reference to the provider's key, "" if it needs none."""
    preset = PRESETS.get(provider.name)
    usual = AWS_KEY if provider.key_id else "" if preset is None else preset.key
    return provider.key or usual

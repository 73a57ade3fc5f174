"""The providers that need no more than their name, and what each needs otherwise."""

from typing import Literal

import msgspec

from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT, OPENAI_CHAT
from palyra.models.dialect import Dialect
from palyra.models.responses import RESPONSES

Api = Literal["chat", "responses", "anthropic"]
DIALECTS: dict[Api, Dialect] = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


class Preset(msgspec.Struct, frozen=True):
    """What is known of a provider by its name."""

    base_url: str
    api: Api = "chat"
    key: str = ""  # reference; "": it wants none


PRESETS: dict[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "chat", "env:OPENAI_API_KEY"),
    "anthropic": Preset("https://api.anthropic.com/v1", "anthropic", "env:ANTHROPIC_API_KEY"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "chat", "env:OPENROUTER_API_KEY"),
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    "llamacpp": Preset("http://127.0.0.1:8080/v1"),
    "vllm": Preset("http://127.0.0.1:8000/v1"),
}


def dialect_at(api: Api, base_url: str) -> Dialect:
    """How the API is spoken there: OpenAI's own chat differs from what others made of it."""
    is_openai = base_url.startswith(PRESETS["openai"].base_url)
    return OPENAI_CHAT if api == "chat" and is_openai else DIALECTS[api]

"""One library a run, in an environment that has it: a text, a stream, a tool, a prompt that is too long.

`python python_clients.py LIBRARY URL TOKEN`; exits 0 if the library read what it should.  Without the
packages of the daemon.
"""

import asyncio
import sys
from collections.abc import Callable

LIBRARY, URL, TOKEN = sys.argv[1:4]
MODEL, BASE = "agent/default", f"{URL}/v1"
CALL = '/call weather {"city": "Oslo"}\n/then\n/say rain it is'


def litellm() -> None:
    import litellm as library

    options = {"model": f"openai/{MODEL}", "api_base": BASE, "api_key": TOKEN}
    said = [{"role": "user", "content": "/say one"}]
    assert "one" == library.completion(messages=said, **options).choices[0].message.content
    parts = library.completion(messages=said, stream=True, **options)
    assert "one" == "".join(part.choices[0].delta.content or "" for part in parts)
    try:
        long = [{"role": "user", "content": "/fail context_overflow"}]
        library.completion(messages=long, **options)
    except library.exceptions.ContextWindowExceededError:
        return
    raise AssertionError("a prompt that is too long was not known as such")


def langchain() -> None:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    models = (
        ChatOpenAI(model=MODEL, base_url=BASE, api_key=TOKEN),
        ChatOpenAI(model=MODEL, base_url=BASE, api_key=TOKEN, use_responses_api=True),
        ChatAnthropic(model_name=MODEL, base_url=URL, api_key=TOKEN),
    )
    for model in models:
        assert "one" == model.invoke("/say one").text
        assert "one" == "".join(part.text for part in model.stream("/say one"))
        first = model.bind_tools([weather]).invoke(CALL)
        (call,) = first.tool_calls
        result = weather.invoke(call)
        last = model.bind_tools([weather]).invoke([("user", CALL), first, result])
        assert "rain it is" == last.text, last
        try:
            model.invoke("/fail context_overflow")
        except Exception as error:
            assert "ContextOverflow" in type(error).__name__, error
        else:
            raise AssertionError("a prompt that is too long was not known as such")


def openai_agents() -> None:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=BASE, api_key=TOKEN)

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        agent = Agent(name="a", model=kind(MODEL, client), tools=[weather], instructions="Be brief.")
        made = asyncio.run(Runner.run(agent, CALL))
        assert "rain it is" == made.final_output


def instructor() -> None:
    import instructor as library
    import openai
    from pydantic import BaseModel

    class City(BaseModel):
        name: str

    client = library.from_openai(
        openai.OpenAI(base_url=BASE, api_key=TOKEN), mode=library.Mode.JSON_SCHEMA
    )
    said = [{"role": "user", "content": '/say {"name": "Oslo"}'}]
    assert "Oslo" == client.chat.completions.create(
        model=MODEL, messages=said, response_model=City
    ).name


def smolagents() -> None:
    from smolagents import OpenAIModel

    model = OpenAIModel(model_id=MODEL, api_base=BASE, api_key=TOKEN)
    said = [{"role": "user", "content": [{"type": "text", "text": "/say one"}]}]
    assert "one" == model(said).content


LIBRARIES: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (litellm, langchain, openai_agents, instructor, smolagents)
}

if __name__ == "__main__":
    LIBRARIES[LIBRARY]()

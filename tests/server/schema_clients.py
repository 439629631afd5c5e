"""Libraries that ask for answers in the form of a schema, each against a model that would not have answered so. What is
not installed is skipped by name."""
import asyncio
import importlib.util
import os

from datetime import date
from enum import Enum
from typing import Annotated, Literal, Optional, Union

from serving import MODEL, Server, check, finish, run, skip

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
QUESTION = "What is the capital of France?"


def person_model():
    """A schema with bounds and choices, as pydantic writes it."""
    from pydantic import BaseModel, Field

    class Person(BaseModel):
        """A person."""
        name: Literal["Ada", "Grace"]
        age: int = Field(ge=1, le=120)
        mood: Literal["glad", "sad"]

    return Person


def order_model():
    """What pydantic makes of types that people use: nested, optional, recursive, told apart by a word, with patterns and dates."""
    from pydantic import BaseModel, Field

    class Size(Enum):
        SMALL = "small"
        LARGE = "large"

    class Card(BaseModel):
        kind: Literal["card"]
        number: str = Field(pattern=r"^\d{4}-\d{4}$")

    class Cash(BaseModel):
        kind: Literal["cash"]
        amount: float = Field(gt=0, lt=1000)

    class Part(BaseModel):
        name: str = Field(min_length=1, max_length=12)
        parts: list["Part"] = Field(max_length=2)

    class Order(BaseModel):
        day: date
        size: Size
        note: Optional[str] = Field(max_length=20)
        pay: Annotated[Union[Card, Cash], Field(discriminator="kind")]
        parts: list[Part] = Field(min_length=1, max_length=2)
        place: tuple[int, int]

    return Order


def is_person(p):
    return p.name in ("Ada", "Grace") and 1 <= p.age <= 120 and p.mood in ("glad", "sad")


def ask_in_detail(s, Order):
    """A schema of many keywords, by a tool that is forced and by response_format."""
    import openai
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0)
    schema = Order.model_json_schema()
    said = {"model": "test", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 400}
    answer = c.chat.completions.create(**said, response_format={"type": "json_schema", "json_schema": {"name": "order", "schema": schema}})
    yield "response_format", Order.model_validate_json(answer.choices[0].message.content)
    tool = {"type": "function", "function": {"name": "order", "parameters": schema, "strict": True}}
    answer = c.chat.completions.create(**said, tools=[tool], tool_choice={"type": "function", "function": {"name": "order"}})
    yield "a tool", Order.model_validate_json(answer.choices[0].message.tool_calls[0].function.arguments)


def ask_openai(s, Person):
    import openai
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0)
    said = [{"role": "user", "content": QUESTION}]
    yield "chat.completions.parse", c.chat.completions.parse(
        model="test", messages=said, response_format=Person, max_tokens=60).choices[0].message.parsed
    yield "responses.parse", c.responses.parse(model="test", input=QUESTION, text_format=Person,
                                               max_output_tokens=60).output_parsed
    tool = openai.pydantic_function_tool(Person)
    answer = c.chat.completions.parse(model="test", messages=said, tools=[tool], tool_choice="required", max_tokens=60)
    yield "a strict tool", answer.choices[0].message.tool_calls[0].function.parsed_arguments


def ask_instructor(s, Person):
    import instructor
    import openai
    for mode in ("TOOLS", "JSON_SCHEMA", "JSON"):
        c = instructor.from_openai(openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0),
                                   mode=getattr(instructor.Mode, mode))
        fields = {} if mode != "JSON" else {"extra_body": {"guided_json": None, "response_format": {
            "type": "json_object", "schema": Person.model_json_schema()}}}
        yield mode, c.chat.completions.create(model="test", messages=[{"role": "user", "content": QUESTION}],
                                              response_model=Person, max_retries=0, max_tokens=60, **fields)


def ask_pydantic_ai(s, Person):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("test", provider=OpenAIProvider(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x"))
    for name, kind in (("tool output", Person), ("native output", NativeOutput(Person))):
        agent = Agent(model, output_type=kind, retries=0, model_settings={"max_tokens": 60})
        yield name, agent.run_sync(QUESTION).output


def ask_langchain_openai(s, Person):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model="test", base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0, max_tokens=60)
    for method in ("json_schema", "function_calling"):
        yield method, model.with_structured_output(Person, method=method).invoke(QUESTION)


def ask_llama_index(s, Person):
    from llama_index.core.prompts import PromptTemplate
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(model="test", api_base=f"http://127.0.0.1:{s.port}/v1", api_key="x", is_chat_model=True,
                       is_function_calling_model=True, max_tokens=60, max_retries=0)
    yield "structured_predict", model.structured_predict(Person, PromptTemplate(QUESTION))


def ask_agents(s, Person):
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="x", max_retries=0)
        agent = Agent(name="a", output_type=Person, model=kind("test", client), model_settings=ModelSettings(max_tokens=60))

        async def ask():
            async with client:
                return (await Runner.run(agent, QUESTION)).final_output
        yield kind.__name__, asyncio.run(ask())


def ask_anthropic(s, Person):
    import anthropic
    c = anthropic.Anthropic(base_url=f"http://127.0.0.1:{s.port}", api_key="x", max_retries=0)
    said = {"model": "test", "max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}]}
    schema = Person.model_json_schema()
    answer = c.messages.create(**said, extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    yield "output_config", Person.model_validate_json(answer.content[0].text)
    answer = c.messages.create(**said, tools=[{"name": "person", "input_schema": schema}],
                               tool_choice={"type": "tool", "name": "person"})
    yield "a tool", Person.model_validate(answer.content[0].input)


def ask_ollama(s, Person):
    import ollama
    c = ollama.Client(host=f"http://127.0.0.1:{s.port}")
    answer = c.chat(model="test", messages=[{"role": "user", "content": QUESTION}], format=Person.model_json_schema(),
                    options={"num_predict": 60})
    yield "format", Person.model_validate_json(answer.message.content)


# The module that tells whether it is there, and what asks.
CLIENTS = {"openai": ask_openai, "instructor": ask_instructor, "pydantic_ai": ask_pydantic_ai,
           "langchain_openai": ask_langchain_openai, "llama_index.llms.openai_like": ask_llama_index, "agents": ask_agents,
           "anthropic": ask_anthropic, "ollama": ask_ollama}


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def every_client():
    Person, Order = person_model(), order_model()
    with Server("-q", model=MODEL) as s:
        for name, got in ask_in_detail(s, Order):
            check(f"in detail, {name}", isinstance(got, Order), repr(got))
        for module, ask in CLIENTS.items():
            if not is_there(module):
                skip(f"schemas with {module}", "it is not installed")
                continue
            try:
                for name, got in ask(s, Person):
                    check(f"{module}, {name}", isinstance(got, Person) and is_person(got), repr(got))
            except Exception as e:  # noqa: BLE001 - the others go on
                check(f"{module}", False, repr(e)[:2000])


if not is_there("pydantic"):
    skip("schemas with client libraries", "pydantic is not installed")
else:
    run([every_client])
finish()

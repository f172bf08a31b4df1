"""Chat templates: transformers' result, the sandbox's limits, and errors in the client's words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from infer.text.chat import ChatTemplate, ChatTemplateError, load_template
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.errors import ModelError

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be kind & brief."},
    {"role": "user", "content": "Grüße <b>🙂</b>"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Bye"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"é": ["<", "&"]}}}]

TEMPLATES = {
    "plain": "{{ bos_token }}{% for m in messages %}\n    {{ m.role }}: {{ m['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}go{% endif %}{{ eos_token }}\n",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "loop controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m.content }}{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}"
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
    "tools": "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{{ messages[-1].content }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}{{ messages | map(attribute='role') | join(',') }}",
    "date": "{{ strftime_now('%Y') | length }}",
}


def render(source: str, messages: list[dict[str, Any]] = HELLO, **values: Any) -> str:
    return ChatTemplate(source, SPECIAL).render(messages, **values)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_the_prompt_is_that_of_transformers(
    smollm2_folder: Path, name: str, tools: list[dict[str, Any]] | None
) -> None:
    theirs = AutoTokenizer.from_pretrained(smollm2_folder)
    ours = ChatTemplate(TEMPLATES[name], Tokenizer.load(smollm2_folder).special_text())
    for go in (False, True):
        expected = theirs.apply_chat_template(
            TALK,
            chat_template=TEMPLATES[name],
            tools=tools,
            tokenize=False,
            add_generation_prompt=go,
        )
        assert ours.render(TALK, tools=tools, add_generation_prompt=go) == expected


def test_values_of_the_request_reach_the_template_over_special_tokens() -> None:
    template = ChatTemplate("{{ bos_token }}{{ enable_thinking }}", SPECIAL)
    assert template.render(HELLO, enable_thinking=False, bos_token="!") == "!False"


def test_messages_are_not_changed_by_rendering() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    before = json.dumps(messages)
    render("{{ messages[0].content }}", messages)
    assert json.dumps(messages) == before


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
GOES_THROUGH_PARTS = "{% for part in messages[0].content %}[{{ part.text }}]{% endfor %}"
TAKES_BOTH = (
    "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}"
    "{% for part in messages[0].content %}[{{ part.text }}]{% endfor %}{% endif %}"
)
BY_MACRO = (
    "{% macro show(content) %}{% for part in content %}[{{ part.text }}]{% endfor %}{% endmacro %}"
    "{{ show(messages[0].content) }}"
)
BY_NAME = (
    "{% for m in messages %}{% set c = m['content'] | list %}"
    "{% for part in c %}[{{ part['text'] }}]{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "text", "parts"),
    [
        ("{{ messages[0].content }}", "ab", "ab"),
        ("{{ messages[0]['content'] | upper | trim }}", "AB", "AB"),
        ("{% for line in messages[0].content.split('\\n') %}{{ line }}{% endfor %}", "ab", "ab"),
        (GOES_THROUGH_PARTS, "[ab]", "[a][b]"),
        (BY_MACRO, "[ab]", "[a][b]"),
        (BY_NAME, "[ab]", "[a][b]"),
        (TAKES_BOTH, "ab", "[a][b]"),
    ],
)
def test_content_comes_in_the_shape_that_the_template_expects(
    source: str, text: str, parts: str
) -> None:
    assert render(source, [{"role": "user", "content": "ab"}]) == text
    assert render(source, [{"role": "user", "content": PARTS}]) == parts


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "x"}}, "text", {}])
def test_parts_that_are_no_text_are_refused_by_templates_that_take_text(part: Any) -> None:
    with pytest.raises(ChatTemplateError, match=r"a content part of type .* is not supported"):
        render("{{ messages[0].content }}", [{"role": "user", "content": [part]}])


def test_a_message_without_content_stays_without() -> None:
    message = {"role": "assistant", "tool_calls": []}
    assert render("{{ messages[0].content is defined }}", [message]) == "False"
    assert render("{{ messages[0].content is none }}", [message | {"content": None}]) == "True"


def test_a_template_refuses_in_its_own_words() -> None:
    """LOAD-09"""
    source = "{{ raise_exception('System role not supported\n  here') }}"
    with pytest.raises(ChatTemplateError) as caught:
        render(source)
    assert str(caught.value) == "System role not supported here"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content.x.y }}",
        "{{ 1 // 0 }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ missing() }}",
        "{{ messages[7].content }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_whatever_fails_in_a_template_is_one_line_for_the_client(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"can't render these messages: .") as caught:
        render(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_a_template_can_not_leave_the_sandbox(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(source)


def test_a_template_can_not_read_files() -> None:
    with pytest.raises(ChatTemplateError, match="can't render"):
        render("{% include '/etc/passwd' %}")


@pytest.mark.parametrize("source", ["{% for m in messages %}", "{{ messages", "{% nonsense %}"])
def test_a_template_that_can_not_be_parsed_is_the_operators_error(source: str) -> None:
    with pytest.raises(ModelError, match=r"can't be parsed: .* \(line 1\); --chat-template"):
        ChatTemplate(source, {})


@pytest.fixture
def model(chain_folder: Path, tmp_path: Path) -> Path:
    """A model whose template is in its tokenizer_config.json."""
    folder = tmp_path / "model"
    shutil.copytree(chain_folder, folder)
    return folder


def configure(folder: Path, template: Any) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["chat_template"]
    path.write_text(
        json.dumps(settings | ({} if template is None else {"chat_template": template}))
    )


def loaded(folder: Path, given: str | None = None) -> ChatTemplate | None:
    return load_template(folder, Tokenizer.load(folder), given)


def shown(folder: Path, given: str | None = None, **values: Any) -> str:
    template = loaded(folder, given)
    assert template is not None
    return template.render(HELLO, **values)


def test_a_model_without_a_template_has_none(model: Path) -> None:
    """LOAD-09"""
    configure(model, None)
    assert loaded(model) is None


def test_templates_are_looked_for_in_the_order_of_transformers(model: Path) -> None:
    configure(model, None)
    (model / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert shown(model) == "json"
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "settings"}))
    assert shown(model) == "settings"
    (model / "chat_template.jinja").write_text("file")
    assert shown(model) == "file"
    assert shown(model, "{{ 'given' }}") == "given"


def test_a_named_template_serves_requests_with_tools(model: Path) -> None:
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools[0].function.name }}"},
    ]
    configure(model, named)
    assert (shown(model), shown(model, tools=[]), shown(model, tools=TOOLS)) == (
        "plain",
        "plain",
        "f",
    )
    configure(model, {"default": "plain"})
    assert shown(model, tools=TOOLS) == "plain"
    configure(model, named[1:])
    assert shown(model, tools=TOOLS) == "f"


def test_named_templates_may_be_files(model: Path) -> None:
    (model / "chat_template.jinja").write_text("plain")
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert (shown(model), shown(model, tools=TOOLS)) == ("plain", "tools")


def test_named_templates_without_a_default_one_are_the_operators_choice(model: Path) -> None:
    configure(model, [{"name": "rag", "template": "a"}, {"name": "tool_use", "template": "b"}])
    with pytest.raises(ModelError, match=r"rag, tool_use but no default one; .*--chat-template"):
        loaded(model)


def test_a_template_file_that_is_not_there_is_named(model: Path) -> None:
    with pytest.raises(ModelError, match=r"--chat-template no\.jinja can't be read: No such file"):
        loaded(model, "no.jinja")

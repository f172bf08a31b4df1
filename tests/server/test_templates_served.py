"""Models without a chat template, and templates that refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.server.running import served

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported here') }}"
    "{% endif %}{{ m.content }}{% endfor %}<|go|>"
)


def without_template(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["chat_template"]
    path.write_text(json.dumps(settings))
    return folder


def test_a_model_without_a_chat_template_still_completes(
    models: Callable[[str], Path], tmp_path: Path
) -> None:
    """LOAD-09"""
    with served(without_template(models("alphabet"), tmp_path / "base")) as server:
        chat = server.chat()
        assert chat.status_code == 400
        message = chat.json()["error"]["message"]
        assert "no chat template" in message
        assert "--chat-template" in message
        assert server.text(max_tokens=20) == "ABCDEFGHIJKLMNOP"


def test_a_template_given_as_a_file_is_used_and_its_refusals_are_told(
    models: Callable[[str], Path], tmp_path: Path
) -> None:
    """LOAD-09"""
    model = without_template(models("alphabet"), tmp_path / "base")
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    with served(model, "--chat-template", str(template)) as server:
        answer = server.chat(max_tokens=20)
        assert answer.json()["choices"][0]["message"]["content"] == "ABCDEFGHIJKLMNOP"
        messages = [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Hi"}]
        refused = server.post("/v1/chat/completions", {"messages": messages})
    assert refused.status_code == 400
    assert "System role not supported here" in refused.json()["error"]["message"]

"""An agent: a model of OpenAI's API works on a task in a container of its own.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python agent.py "Write hello.py and run it"

IMAGE, PURPOSE and MODEL are optional.
"""

import json
import os
import sys
import urllib.request

import coracle.sync

SHELL = {
    "name": "shell",
    "description": "Runs a command in a Linux container.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def reply(messages):
    body = {
        "model": os.environ.get("MODEL", "gpt-4.1"),
        "messages": messages,
        "tools": [{"type": "function", "function": SHELL}],
    }
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]


def main(task):
    fields = {name: os.environ[name.upper()] for name in ("image", "purpose") if name.upper() in os.environ}
    messages = [{"role": "user", "content": task}]
    with coracle.sync.Container(mount_cwd=False, **fields) as container:
        while calls := (message := reply(messages)).get("tool_calls"):
            messages.append(message)
            for call in calls:
                r = container.exec(json.loads(call["function"]["arguments"])["command"], timeout=120)
                content = f"exit code {r.exit_code}\n{r.stdout}{r.stderr}"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    print(message["content"])


main(sys.argv[1])

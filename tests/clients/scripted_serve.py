"""In place of `coracle serve`: it reads lines of requests, and answers as the name of the operation says."""

import json
import os
import sys

calls, cancelled = [], []


def send(line):
    sys.stdout.write(line if isinstance(line, str) else json.dumps(line) + "\n")
    sys.stdout.flush()


def event(number, **fields):
    send({"id": number, "event": fields})


def answer(number, **fields):
    send({"id": number, "result": {"success": True, **fields}})


for line in sys.stdin:
    request = json.loads(line)
    number, call = request["id"], request.get("call", {})
    if "cancel" in request:
        cancelled.append(request["cancel"])
        answer(number, cancelled=True)
        send({"id": request["cancel"], "result": {"success": False, "code": "cancelled", "error": "cancelled"}})
        continue
    if "more" in request:
        answer(number, running=True)
        continue
    calls.append(call["operation"])
    match call["operation"]:
        case "steps":
            event(number, event="step", step={})
            event(number, event="step", step={})
            answer(number)
        case "exec" if call["command"] == "fail":
            event(number, event="stdout", data="begun\n", offset=0)
            send({"id": number, "result": {"success": False, "code": "container_stopped", "error": "it stopped"}})
        case "exec":
            # It runs until it is cancelled.
            event(number, event="stdout", data="begun\n", offset=0)
        case "destroy" if os.environ.get("STUCK"):
            send({"id": number, "result": {"success": False, "code": "save_failed", "error": "no room"}})
        case "create":
            given = {"reused": call.get("if_exists") == "reuse", "persistent": call.get("persistent", False)}
            answer(number, container="c", **given)
        case "told":
            answer(number, calls=calls, cancelled=cancelled)
        case "nonsense":
            send("nonsense\n")
        case "end":
            os._exit(7)
        case _:
            answer(number)

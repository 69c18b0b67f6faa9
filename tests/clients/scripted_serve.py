"""In place of `coracle serve`: it reads lines of requests, and answers as the name of the operation says."""

import json
import os
import sys

calls, cancelled = [], []
# The command that prints more than a client holds: its number, the lines that are left, and those that were printed.
flood, left, printed = None, 0, 0
# The last request for a container.
last = None


def send(line):
    sys.stdout.write(line if isinstance(line, str) else json.dumps(line) + "\n")
    sys.stdout.flush()


def event(number, **fields):
    send({"id": number, "event": fields})


def answer(number, **fields):
    send({"id": number, "result": {"success": True, **fields}})


def print_lines(number, count):
    global left, printed
    for _ in range(min(count, left)):
        event(number, event="stdout", data="x\n", offset=2 * printed)
        left, printed = left - 1, printed + 1
    if left == 0:
        answer(number, exit_code=0)


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
        if request["more"] == flood:
            print_lines(flood, request["window"])
        continue
    calls.append(call["operation"])
    match call["operation"]:
        case "steps":
            event(number, event="step", step={})
            event(number, event="step", step={})
            answer(number)
        case "exec" if call["command"] in ["flood", "overflow"]:
            flood, left, printed = number, 1000, 0
            print_lines(number, request["window"] if call["command"] == "flood" else 1000)
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
            last = call
            event(number, event="step", step={"duration_ms": 1, "items": [{"exit_code": 1}]})
            answer(number, container="c", **given)
        case "state":
            answer(number, calls=calls, cancelled=cancelled, printed=printed, last=last)
        case "fails":
            send({"id": number, "result": {"success": False, "code": call["code"], "error": "it failed"}})
        case "nonsense":
            send("nonsense\n")
        case "end":
            os._exit(7)
        case _:
            answer(number)

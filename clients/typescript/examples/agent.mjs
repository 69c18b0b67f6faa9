// An agent: a model of OpenAI's API works on a task in a container of its own.
//
//     OPENAI_BASE_URL=… OPENAI_API_KEY=… node agent.mjs "Write hello.py and run it"
//
// IMAGE, PURPOSE and MODEL are optional.

import { Container } from "coracle-client";

const { OPENAI_BASE_URL, OPENAI_API_KEY = "", MODEL = "gpt-4.1", IMAGE, PURPOSE } = process.env;
const shell = {
  name: "shell",
  description: "Runs a command in a Linux container.",
  parameters: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
};

async function reply(messages) {
  const response = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${OPENAI_API_KEY}` },
    body: JSON.stringify({ model: MODEL, messages, tools: [{ type: "function", function: shell }] }),
  });
  return (await response.json()).choices[0].message;
}

await Container.using({ mountCwd: false, image: IMAGE, purpose: PURPOSE }, async (container) => {
  const messages = [{ role: "user", content: process.argv[2] }];
  for (;;) {
    const message = await reply(messages);
    if (!message.tool_calls?.length) return console.log(message.content);
    messages.push(message);
    for (const call of message.tool_calls) {
      const r = await container.exec(JSON.parse(call.function.arguments).command, { timeout: 120 });
      const content = `exit code ${r.exitCode}\n${r.stdout}${r.stderr}`;
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
});

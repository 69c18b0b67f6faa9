// Requests that the proxies of containers refused, and what the user decides about them.
import { call } from "./api.js";
import { confirm, menu } from "./controls.js";
import { every, h } from "./dom.js";
import { announce, emptyState } from "./messages.js";
import { listing } from "./table.js";
import { state, when } from "./text.js";

const EVERY = 1000;

const KINDS = { waiting: ["Waits for you", "busy"], pending: ["Refused", "warn"], allowed_once: ["Allowed once", "good"], denied: ["Denied", ""], allowed: ["Allowed", "good"] };

async function decide(request, scope) {
  const answer = scope === "deny" ? await call("approvals deny", { id: request.id }) : await call("approvals allow", { id: request.id, scope });
  announce(answer.written ? `${answer.rule} is allowed, and is in ${answer.written.file}.` : `${answer.rule}: ${answer.decision}.`);
}

async function always(request) {
  const text = `The rule ${request.rule} will be in your configuration, also for new containers. The old text is saved beside the file.`;
  if (await confirm("Allow it always?", text, "Allow always")) await decide(request, "always");
}

async function revoke(rule) {
  await call("approvals revoke", { rule: rule.rule, name: rule.container });
  announce(`${rule.rule} is no longer allowed for ${rule.container}.`);
}

export async function approvalsPage(place) {
  const refresh = async () => {
    try {
      const { requests, allowed } = await call("approvals list");
      list.show([...requests, ...allowed.map((it) => ({ ...it, state: "allowed", id: it.rule }))]);
    } catch (error) {
      list.fail(error);
    }
  };
  const changing = async (work) => { try { await work(); } finally { await refresh(); } };
  const choices = (it) => it.state === "allowed" ? [{ text: "Revoke", danger: true, work: () => changing(() => revoke(it)) }] : [
    { text: "Allow once", work: () => changing(() => decide(it, "once")) },
    { text: "Allow for this container", work: () => changing(() => decide(it, "session")) },
    { text: "Allow always…", work: () => changing(() => always(it)) },
    { text: "Deny", danger: true, work: () => changing(() => decide(it, "deny")) },
  ];
  const columns = [
    { title: "Rule", kind: "lead", sort: (it) => it.rule, cell: (it) => h("span", { class: "stack" }, h("code", {}, it.rule), h("span", { class: "minor" }, it.reason || it.code || "")) },
    { title: "Container", sort: (it) => it.container, cell: (it) => it.container },
    { title: "State", sort: (it) => it.state, cell: (it) => state(...KINDS[it.state]) },
    { title: "Times", kind: "num", sort: (it) => it.count || 0, cell: (it) => it.count ? String(it.count) : "" },
    { title: "Last", kind: "low", sort: (it) => it.last || "", cell: (it) => it.last ? when(it.last) : "" },
    { title: "Actions", kind: "last", cell: (it) => menu(`Decide about ${it.rule}`, () => choices(it), { key: `menu ${it.container} ${it.id}` }) },
  ];
  const list = listing({
    caption: "Requests that a rule would allow", columns, text: (it) => `${it.rule} ${it.container}`,
    empty: () => emptyState("link", "No refused requests", "With `network: \"proxy\"`, containers reach only what your rules allow. What they try beside that is here."),
  });
  place.append(h("div", { class: "head" }, h("div", {}, h("h1", {}, "Network"), h("p", { class: "subtitle" }, "Requests that the proxy of a container refused, and a rule would allow."))), list.element);
  await refresh();
  return every(EVERY, refresh);
}

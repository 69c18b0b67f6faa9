// All machines, and the form that creates one.
import { call, machines } from "./api.js";
import { announce, button, bytes, confirm, failure, h, percent, replace, showFailure, state, table, when } from "./dom.js";

const EVERY = 2000;

/** Asks, and removes a machine. */
export async function destroy(name) {
  const text = "Its commands end. Work that only this machine has is saved on this host first.";
  if (!await confirm(`Remove ${name}?`, text, "Remove")) return false;
  announce(`Removing ${name}…`);
  const answer = await call("destroy", { container: name });
  const saved = answer.saved?.length ? " Its work was saved: `coracle saved list` shows it." : "";
  announce(`${name} is removed.${saved}`);
  return true;
}

export const memory = (row) =>
  row.memory_limit ? `${bytes(row.memory_bytes)} of ${bytes(row.memory_limit)}` : bytes(row.memory_bytes);

function rows(answer, refresh) {
  return answer.containers.map((it) => [
    h("a", { href: `#/machine/${it.name}`, "data-key": `open ${it.name}` }, it.name),
    it.image, it.engine, it.session,
    state(it.status, it.running),
    it.running ? percent(it.cpu_percent) : "",
    it.running ? memory(it) : "",
    String(it.jobs_running),
    when(it.created),
    button("Remove", async () => { if (await destroy(it.name)) await refresh(true); },
      { class: "danger", "aria-label": `Remove ${it.name}`, "data-key": `remove ${it.name}` }),
  ]);
}

const COLUMNS = ["Name", "Image", "Engine", "Session", "State", "CPU", "Memory", "Jobs", "Created", "Action"];

export async function machinesPage(place) {
  const list = h("div", { class: "wide" });
  place.append(h("h1", {}, "Machines"), list, createForm((anew) => refresh(anew)));
  let ended = false;
  async function refresh(anew = false) {
    try {
      const answer = await machines(anew);
      replace(list, table("Machines of all sessions", COLUMNS, rows(answer, refresh), "There is no machine. The form below creates one."));
    } catch (error) {
      replace(list, failure(error));
    }
  }
  await refresh();
  const timer = setInterval(() => { if (!ended && !document.hidden) refresh(); }, EVERY);
  return () => { ended = true; clearInterval(timer); };
}

const PURPOSES = ["", "general", "python", "node", "bun", "rust", "go", "browser", "desktop", "clean"];

function field(label, name, properties = {}, help = null) {
  const id = `create-${name}`;
  const input = properties.options
    ? h("select", { id, name }, properties.options.map((it) => h("option", { value: it }, it || "none")))
    : h(properties.tag || "input", { id, name, autocomplete: "off", spellcheck: "false", ...properties, "aria-describedby": help && `${id}-help` });
  return h("div", { class: "field" }, h("label", { for: id }, label), input, help && h("p", { class: "help", id: `${id}-help` }, help));
}

function check(label, name, checked) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), label);
}

/** Arguments of `create`: what was left empty is left out. */
function createArguments(form) {
  const data = new FormData(form);
  const text = (name) => data.get(name).trim();
  const args = { mount_cwd: data.has("mount_cwd"), persistent: data.has("persistent") };
  for (const name of ["name", "image", "purpose", "memory_limit"]) if (text(name)) args[name] = text(name);
  if (text("cpu_limit")) args.cpu_limit = Number(text("cpu_limit"));
  if (text("ports")) args.ports = text("ports").split(/[\s,]+/);
  if (text("setup")) args.setup_commands = text("setup").split("\n").map((it) => it.trim()).filter(Boolean);
  return args;
}

function createForm(refresh) {
  const outcome = h("div", {});
  const submit = h("button", { type: "submit", class: "primary" }, "Create");
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      outcome.replaceChildren();
      announce("Creating the machine. The first one of a purpose takes minutes while its image is built.");
      try {
        const answer = await call("create", createArguments(form));
        announce(`${answer.container} is ready.`);
        outcome.replaceChildren(h("p", { class: "done" }, h("a", { href: `#/machine/${answer.container}` }, `Open ${answer.container}`)));
        form.reset();
      } catch (error) {
        announce("");
        outcome.replaceChildren(failure(error));
      }
      submit.disabled = false;
      refresh(true).catch(showFailure);
    },
  },
  field("Name", "name", {}, "A fresh name if empty."),
  field("Purpose", "purpose", { options: PURPOSES }, "It decides image and packages."),
  field("Image", "image", {}, "Without purpose and image it is the configured default."),
  field("Memory", "memory_limit", { placeholder: "4g" }),
  field("CPUs", "cpu_limit", { type: "number", min: "0.1", step: "0.1", placeholder: "2" }),
  field("Ports", "ports", { placeholder: "8080 5432" }),
  h("div", { class: "field whole" }, field("Setup commands, one a line", "setup", { tag: "textarea", rows: "2" })),
  h("div", { class: "field whole checks" },
    check("Mount the directory in which coracle ui was started", "mount_cwd", false),
    check("Persistent: it outlives the session", "persistent", false)),
  h("div", { class: "field whole" }, submit));
  return h("section", { "aria-labelledby": "create-title" }, h("h2", { id: "create-title" }, "Create a machine"), form, outcome);
}

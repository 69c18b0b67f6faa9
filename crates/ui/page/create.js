// The dialog that creates a machine.
import { follow, purposes } from "./api.js";
import { check, field, openDialog } from "./controls.js";
import { h } from "./dom.js";
import { announce, failure } from "./messages.js";
import { liveSteps } from "./steps.js";
import { count } from "./text.js";

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

function fields() {
  return [
    h("div", { class: "fields" },
      field("Name", "create-name", { autofocus: true }, "Leave empty for a generated name."),
      field("Purpose", "create-purpose", { options: [["", "Choose by image"]] }, "Sets the base image and packages."),
      field("Image", "create-image", { placeholder: "python:3.12" }, "Leave empty for that of the purpose, or the configured default."),
      field("Ports", "create-ports", { placeholder: "8000 5432" }, "Ports inside, which get free ports of this host.")),
    h("details", {}, h("summary", {}, "Limits and setup"),
      h("div", { class: "fields" },
        field("Memory", "create-memory_limit", { placeholder: "4g" }),
        field("CPUs", "create-cpu_limit", { type: "number", min: "0.1", step: "0.1", placeholder: "2" })),
      field("Setup commands, one per line", "create-setup", { tag: "textarea", rows: "3", placeholder: "pip install -r requirements.txt" })),
    h("div", { class: "checks" },
      check("Mount the directory in which `coracle ui` was started", "mount_cwd"),
      check("Keep it when its session ends", "persistent")),
  ];
}

/** Opens it. `created` is called when a machine was made, or could not be. */
export function openCreate(created) {
  let isOpen = true;
  const trouble = h("div", {});
  const submit = h("button", { type: "submit", class: "primary" }, "Create");
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); create(); } },
    fields(), trouble, h("div", { class: "actions end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit));
  const progress = h("div", { hidden: true });
  const dialog = openDialog("New machine", [form, progress], { wide: true, closed: () => { isOpen = false; } });

  async function offerPurposes() {
    try {
      form.elements.namedItem("purpose").append(...(await purposes()).map((name) => h("option", { value: name }, name)));
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  }

  const ready = (answer) => {
    const failed = (answer.provisioning_report || []).filter((it) => !["success", "skipped"].includes(it.status));
    return [
      failed.length > 0 && h("p", { class: "notice warn" }, `${count(failed.length, "step")} did not succeed. The report of the machine says why.`),
      h("div", { class: "actions end" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Close"),
        h("a", { class: "button primary", "data-key": "open created", href: `#/machine/${answer.container}${failed.length > 0 ? "/report" : ""}`, onclick: () => dialog.close() }, `Open ${answer.container}`)),
    ];
  };

  async function create() {
    const args = createArguments(form);
    const steps = liveSteps("Preparing the image. The first one of a purpose takes minutes.");
    trouble.replaceChildren();
    form.hidden = true;
    progress.hidden = false;
    const help = h("p", { class: "help" }, "You can close this: the machine is finished all the same.");
    progress.replaceChildren(steps.element, help);
    try {
      const answer = await follow("create", args, steps.event);
      steps.end(`${answer.container} is ready.`, true);
      if (!isOpen) announce(`${answer.container} is ready.`);
      help.remove();
      progress.append(...ready(answer).filter(Boolean));
      progress.querySelector("a")?.focus();
    } catch (error) {
      steps.stop();
      progress.hidden = true;
      form.hidden = false;
      trouble.replaceChildren(failure(error));
      if (!isOpen) announce(`The machine was not created: ${error.message}`);
    }
    created();
  }

  offerPurposes();
}

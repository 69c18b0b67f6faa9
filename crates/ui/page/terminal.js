// Terminals of a machine, each over a WebSocket. They go on when the page is closed.
import { terminals } from "./api.js";
import { button } from "./controls.js";
import { h, icon } from "./dom.js";
import { announce, failure } from "./messages.js";
import { FitAddon } from "./vendor/addon-fit.js";

const encoder = new TextEncoder();

const ANSI = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Colors of the page's theme. Those of programs are readable on it, also pale ones. */
function theme() {
  const probe = h("span", {});
  document.body.append(probe);
  const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const own = { background: color("terminal"), foreground: color("text"), cursor: color("accent"), cursorAccent: color("terminal"), selectionBackground: color("selection") };
  for (const name of ANSI) {
    own[name] = color(`ansi-${name}`);
    own[`bright${name[0].toUpperCase()}${name.slice(1)}`] = color(`ansi-bright-${name}`);
  }
  probe.remove();
  return own;
}

// Text that comes without a key, such as of dictation or a palette of emoji. The terminal passes it over while it serves
// screen readers.
function takeText(terminal) {
  let isKeyDown = false;
  const { textarea } = terminal;
  textarea.addEventListener("keydown", () => { isKeyDown = true; });
  textarea.addEventListener("keyup", () => { isKeyDown = false; });
  textarea.addEventListener("blur", () => { isKeyDown = false; });
  textarea.addEventListener("input", ({ inputType, data }) => { if (inputType === "insertText" && data && !isKeyDown) terminal.input(data); });
}

/** One terminal. Without an id it is a new one. `changed` is called when its id or state is another one. */
async function attach(name, id, { place, leave, changed }) {
  const { Terminal } = await import("./vendor/xterm.js");
  const terminal = new Terminal({ fontSize: 14, theme: theme(), minimumContrastRatio: 4.5, screenReaderMode: true, cursorBlink: false, scrollback: 5000 });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  takeText(terminal);
  fit.fit();
  const own = { id, state: "connecting", failure: null, focus: () => terminal.focus() };
  const set = (fields) => { Object.assign(own, fields); changed(own); };
  const socket = new WebSocket(new URL("terminal", location.href.replace(/#.*/, "")).href.replace(/^http/, "ws"));
  socket.binaryType = "arraybuffer";
  const size = () => ({ cols: terminal.cols, rows: terminal.rows });
  const send = (data) => { if (socket.readyState === WebSocket.OPEN) socket.send(data); };
  // Answers of the terminal to what a program requested long ago are not for the program that runs now.
  let isLive = false;
  socket.onopen = () => send(JSON.stringify({ container: name, terminal: id, new: id === undefined, ...size() }));
  socket.onmessage = ({ data }) => {
    if (data instanceof ArrayBuffer) return terminal.write(new Uint8Array(data));
    const message = JSON.parse(data);
    if (message.terminal) set({ id: message.terminal, state: "attached" });
    if (message.replayed) terminal.write("", () => { isLive = true; });
    if (message.failure) set({ failure: message.failure });
    if ("end" in message) {
      announce(message.end === null ? "The terminal was ended." : `The terminal ended with exit code ${message.end}.`);
      set({ hasEnded: true });
    }
  };
  socket.onclose = () => {
    terminal.options.disableStdin = true;
    set({ state: "ended" });
  };
  terminal.onData((keys) => { if (isLive) send(encoder.encode(keys)); });
  terminal.onBinary((keys) => { if (isLive) send(Uint8Array.from(keys, (it) => it.charCodeAt(0))); });
  terminal.onResize(() => send(JSON.stringify(size())));
  // The way out of the terminal by the keyboard: Tab is for the program inside.
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.key === "Escape") { leave(); return false; }
    return true;
  });
  // The size of what is hidden is not known.
  const watcher = new ResizeObserver(() => { if (place.offsetParent) fit.fit(); });
  watcher.observe(place);
  const recolor = () => { terminal.options.theme = theme(); };
  document.addEventListener("themechange", recolor);
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", recolor);
  own.close = () => {
    watcher.disconnect();
    document.removeEventListener("themechange", recolor);
    media.removeEventListener("change", recolor);
    socket.onclose = null;
    socket.close();
    terminal.dispose();
    place.remove();
  };
  return own;
}

const LABELS = { connecting: "Connecting…", attached: "Attached", ended: "Ended" };

export function terminalPanel(machine) {
  const { name } = machine;
  // Each is `{ id, place, session }`: a session is what is attached, and missing for what is only open.
  let all = [];
  let current = null;
  let began = false;
  const list = h("div", { class: "terminals", role: "group", "aria-label": "Open terminals" });
  const note = h("span", { class: "terminal-state", role: "status" });
  const trouble = h("div", {});
  const screens = h("div", { class: "screens" });
  const wide = button([icon("wide"), h("span", {}, "Full page")], () => {
    const isWide = box.classList.toggle("full-page");
    wide.setAttribute("aria-pressed", String(isWide));
    current?.session?.focus();
  }, { "aria-label": "Full page", "aria-pressed": "false", "data-key": "full page" });
  const detach = button("Detach", () => { close(current); announce("Detached; the terminal goes on."); });
  const fresh = button([icon("plus"), h("span", {}, "New terminal")], () => open({ id: undefined }), { "aria-label": "New terminal", "data-key": "New terminal" });
  const box = h("div", { class: "terminal-card" }, h("div", { class: "toolbar" }, list, note, fresh, detach, wide), trouble, screens,
    h("p", { class: "help" }, "A terminal goes on when you leave the page. Ctrl+Shift+Escape leaves it by the keyboard."));
  const stopped = h("div", { class: "card" }, h("p", { class: "empty" }, "Start the machine to open a terminal."));

  function draw() {
    list.replaceChildren(...all.map((it, at) => h("button", {
      type: "button", "aria-pressed": String(it === current), "data-key": `terminal ${it.id}`, title: it.command || "", class: it.session?.state === "ended" ? "ended" : "",
      onclick: () => select(it),
    }, `Terminal ${at + 1}`)));
    const session = current?.session;
    note.textContent = session ? LABELS[session.state] : all.length === 0 ? "No terminal is open." : "Detached";
    note.className = `terminal-state ${session?.state || ""}`;
    detach.hidden = session?.state !== "attached";
    trouble.replaceChildren(...(session?.failure ? [failure(session.failure)] : []));
    for (const it of all) if (it.place) it.place.hidden = it !== current;
    screens.hidden = !session;
  }

  async function open(one) {
    if (!all.includes(one)) all.push(one);
    current = one;
    one.place = h("div", { class: "terminal-box" });
    screens.append(one.place);
    screens.hidden = false;
    for (const it of all) if (it.place) it.place.hidden = it !== one;
    one.session = await attach(name, one.id, {
      place: one.place,
      leave: () => (detach.hidden ? fresh : detach).focus(),
      changed: (session) => {
        one.id = session.id;
        one.place.classList.toggle("ended", session.state === "ended");
        draw();
      },
    });
    draw();
    one.session.focus();
  }

  async function select(one) {
    if (one.session?.state === "ended" && !one.session.hasEnded) close(one);
    current = one;
    if (!one.session) return open(one);
    draw();
    one.session.focus();
  }

  function close(one) {
    one?.session?.close();
    if (one) Object.assign(one, { session: null, place: null });
    draw();
  }

  async function shown() {
    if (!machine.row.running) return;
    if (began) return current?.session?.focus();
    began = true;
    note.textContent = LABELS.connecting;
    all = (await terminals(name)).terminals.map(({ terminal, command }) => ({ id: terminal, command }));
    draw();
    await open(all.at(-1) || { id: undefined });
  }

  const update = () => {
    box.hidden = !machine.row.running;
    stopped.hidden = machine.row.running;
    if (!machine.row.running && began) {
      all.forEach(close);
      [all, current, began] = [[], null, false];
    }
  };
  update();
  return { element: h("div", {}, stopped, box), shown, update, end: () => all.forEach(close) };
}

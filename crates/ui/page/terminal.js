// A terminal of a machine, over a WebSocket. It goes on when the page is closed.
import { announce, button, failure, h } from "./dom.js";
import { FitAddon } from "./vendor/addon-fit.js";

const encoder = new TextEncoder();

function colors() {
  const probe = h("span", {});
  document.body.append(probe);
  const color = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const theme = { background: color("--terminal"), foreground: color("--text"), cursor: color("--accent"), selectionBackground: color("--selection") };
  probe.remove();
  return theme;
}

export function terminalSection(name, running) {
  const place = h("div", { class: "terminal-box" });
  const trouble = h("div", {});
  let open = null;

  async function attach(isNew) {
    close();
    trouble.replaceChildren();
    place.classList.remove("ended");
    // The size of what is hidden is not known.
    place.hidden = false;
    const { Terminal } = await import("./vendor/xterm.js");
    const terminal = new Terminal({ fontSize: 14, theme: colors(), screenReaderMode: true, cursorBlink: false, scrollback: 5000 });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(place);
    fit.fit();
    const socket = new WebSocket(new URL("terminal", location.href.replace(/#.*/, "")).href.replace(/^http/, "ws"));
    socket.binaryType = "arraybuffer";
    const size = () => ({ cols: terminal.cols, rows: terminal.rows });
    const send = (data) => { if (socket.readyState === WebSocket.OPEN) socket.send(data); };
    // Answers of the terminal to what a program asked long ago are not for the program that runs now.
    let live = false;
    socket.onopen = () => send(JSON.stringify({ container: name, new: isNew, ...size() }));
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) return terminal.write(new Uint8Array(data));
      const message = JSON.parse(data);
      if (message.terminal) announce(`Attached to terminal ${message.terminal}.`);
      if (message.replayed) terminal.write("", () => { live = true; });
      if (message.failure) trouble.replaceChildren(failure(message.failure));
      if ("end" in message) announce(message.end === null ? "The terminal was ended." : `The terminal ended with exit code ${message.end}.`);
    };
    socket.onclose = () => { terminal.options.disableStdin = true; place.classList.add("ended"); };
    terminal.onData((keys) => { if (live) send(encoder.encode(keys)); });
    terminal.onBinary((keys) => { if (live) send(Uint8Array.from(keys, (it) => it.charCodeAt(0))); });
    terminal.onResize(() => send(JSON.stringify(size())));
    // The way out of the terminal by the keyboard: Tab is for the program inside.
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.key === "Escape") { leave.focus(); return false; }
      return true;
    });
    const watcher = new ResizeObserver(() => fit.fit());
    watcher.observe(place);
    const recolor = () => { terminal.options.theme = colors(); };
    document.addEventListener("themechange", recolor);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", recolor);
    open = () => {
      watcher.disconnect();
      document.removeEventListener("themechange", recolor);
      media.removeEventListener("change", recolor);
      socket.onclose = null;
      socket.close();
      terminal.dispose();
      place.replaceChildren();
    };
    terminal.focus();
    // What is out of sight is not drawn.
    place.scrollIntoView({ block: "nearest" });
  }

  function close() {
    open?.();
    open = null;
  }

  const leave = button("Detach", () => { close(); place.hidden = true; announce("Detached; the terminal goes on."); });
  place.hidden = true;
  const buttons = h("div", { class: "actions" }, button("Attach", () => attach(false)), button("New terminal", () => attach(true)), leave);
  const help = h("p", { class: "help" }, "Attach returns to the newest terminal, or opens one. Ctrl+Shift+Escape leaves it by the keyboard.");
  const element = running ? h("div", {}, buttons, help, trouble, place) : h("p", { class: "empty" }, "The machine does not run.");
  return { element, end: close };
}

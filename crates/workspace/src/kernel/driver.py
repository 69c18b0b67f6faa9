# Runs code for an agent, and keeps its variables from run to run. Requests are JSON lines on standard input. Replies stand
# in standard output behind the mark, which is the first argument, between what the code prints there.
import ast, base64, io, json, linecache, math, os, queue, signal, sys, threading, time, traceback, types

MARK = sys.argv.pop(1)
SKIPPED = {"node_modules", "__pycache__", "site-packages"}
MAX_TEXT, MAX_IMAGE, MAX_IMAGES, MAX_OUTPUTS = 32768, 3 << 20, 6 << 20, 32
MAX_ROWS, MAX_COLUMNS, MAX_FILES, MAX_ENTRIES = 100, 50, 50, 20000
# What is written at once to a pipe stays together up to 4096 bytes.
PIECE = 2700

replies = os.dup(1)
requests = os.fdopen(os.dup(0), "rb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.environ.setdefault("MPLBACKEND", "agg")
sys.argv[:] = [""]

todo = queue.Queue()
running = None
outputs = []
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
space = main.__dict__


def listen():
    for line in requests:
        request = json.loads(line)
        if "interrupt" not in request:
            todo.put(request)
        elif request["interrupt"] == running:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    os._exit(0)


def interrupted(*_):
    if running is not None:
        raise KeyboardInterrupt


def reply(message):
    # Half characters, which a text may have here, are in no JSON.
    data = base64.b64encode(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")).decode()
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)] or [""]
    for number, piece in enumerate(pieces, 1):
        last = "." if number == len(pieces) else "+"
        os.write(replies, f"\x1e{MARK}{last}{piece}\n".encode())


def cut(text):
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "[truncated]"


def add(kind, text=None, data=None, **more):
    images = sum(len(it.get("data", "")) for it in outputs) * 3 // 4
    if len(outputs) >= MAX_OUTPUTS:
        return
    if data is not None:
        if len(data) > MAX_IMAGE or images + len(data) > MAX_IMAGES:
            text, data, kind = f"<{kind} of {len(data)} bytes is too large to be shown; save it as a file>", None, "text/plain"
        else:
            more["data"] = base64.b64encode(data).decode()
    if text is not None:
        more["text"] = cut(text)
    outputs.append({"type": kind, **more})


def finite(it):
    return it if not isinstance(it, float) or math.isfinite(it) else None


def table(value):
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "pandas" and kind.__name__ in ("DataFrame", "Series"):
        frame = value.to_frame() if kind.__name__ == "Series" else value
        shown = frame.iloc[:MAX_ROWS, :MAX_COLUMNS]
        split = json.loads(shown.to_json(orient="split", date_format="iso", default_handler=str))
        text = value.to_string(max_rows=40)
        return text, [str(it) for it in split["columns"]], split["data"], split["index"], len(frame)
    if module == "polars" and kind.__name__ == "DataFrame":
        shown = value.head(MAX_ROWS)
        rows = [[finite(it) for it in row] for row in shown.rows()]
        rows = json.loads(json.dumps(rows, default=str, allow_nan=False))
        return repr(value), list(value.columns), rows, None, value.height
    return None


def show(value):
    """Adds what a value looks like to the outputs of the run."""
    found = None
    try:
        found = table(value)
    except Exception:
        pass
    if found:
        text, columns, rows, index, count = found
        add("text/plain", text)
        add("table", columns=columns, rows=rows, index=index, row_count=count)
        return
    if type(value).__module__.startswith("matplotlib") and hasattr(value, "savefig"):
        return figure(value)
    for method, kind in (("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"),
                         ("_repr_html_", "text/html")):
        try:
            shown = getattr(value, method)()
        except Exception:
            continue
        if isinstance(shown, tuple):
            shown = shown[0]
        if isinstance(shown, str) and kind in ("image/png", "image/jpeg"):
            shown = base64.b64decode(shown)
        if isinstance(shown, (bytes, bytearray)):
            return add(kind, data=bytes(shown))
        if isinstance(shown, str):
            if kind == "text/html":
                add("text/plain", repr(value))
            return add(kind, shown)
    add("text/plain", repr(value))


def figure(it):
    into = io.BytesIO()
    it.savefig(into, format="png", bbox_inches="tight")
    add("image/png", data=into.getvalue())
    plots = sys.modules.get("matplotlib.pyplot")
    if plots:
        plots.close(it)


def figures():
    plots = sys.modules.get("matplotlib.pyplot")
    for number in plots.get_fignums() if plots else ():
        figure(plots.figure(number))


root = os.getcwd()


def written(since):
    """Files beneath the working directory that were written since then."""
    found, left, seen, until = [], [root], 0, time.monotonic() + 0.3
    while left and seen < MAX_ENTRIES and time.monotonic() < until:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    if entry.is_dir():
                        if entry.name not in SKIPPED:
                            left.append(entry.path)
                    elif entry.is_file():
                        status = entry.stat()
                        if status.st_ctime_ns >= since:
                            found.append({"path": os.path.relpath(entry.path, root), "bytes": status.st_size})
        except OSError:
            pass
    found.sort(key=lambda it: it["path"])
    return found[:MAX_FILES], max(0, len(found) - MAX_FILES)


def execute(code, name):
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), space)
        if value is not None:
            space["_"] = value
            return value
    return None


def fault(err):
    trace = err.__traceback__
    while trace and not trace.tb_frame.f_code.co_filename.startswith("<run "):
        trace = trace.tb_next
    frame = trace
    while frame and frame.tb_next:
        if frame.tb_next.tb_frame.f_code is interrupted.__code__:
            frame.tb_next = None
        frame = frame.tb_next
    try:
        print("".join(traceback.format_exception(type(err), err, trace)), file=sys.stderr, end="")
    except Exception:
        pass
    return {"name": type(err).__name__, "message": cut(str(err))}


def run(request):
    global running
    outputs.clear()
    started = time.time_ns() - 20_000_000
    answer = {"run": request["run"], "error": None, "value": None}
    try:
        running = request["run"]
        value = execute(request["code"], f"<run {request['run']}>")
        if value is not None:
            answer["value"] = cut(repr(value))
            show(value)
        figures()
    except BaseException as err:
        answer["error"] = fault(err)
    finally:
        running = None
    if answer["error"]:
        try:
            figures()
        except Exception:
            pass
    answer["outputs"] = outputs
    answer["files"], answer["files_omitted"] = written(started)
    return answer


space["display"] = show
signal.signal(signal.SIGINT, interrupted)
threading.Thread(target=listen, daemon=True).start()
reply({"ready": sys.version.split()[0]})
while True:
    try:
        answer = run(todo.get())
    except KeyboardInterrupt:
        continue
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os.write(2, f"\x1e{MARK}.\n".encode())
    reply(answer)

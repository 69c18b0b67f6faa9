# Runs code for an agent, and keeps its variables from run to run. Requests are JSON lines on standard input. Replies stand
# in standard output behind the mark, which is the first argument, between what the code prints there.
import ast, base64, importlib.util, io, json, linecache, math, os, queue, re, shutil, signal, subprocess, sys, threading, time, traceback, types

MARK = sys.argv.pop(1)
SKIPPED = {"node_modules", "__pycache__", "site-packages"}
MAX_TEXT, MAX_IMAGE, MAX_IMAGES, MAX_OUTPUTS = 32768, 3 << 20, 6 << 20, 32
MAX_ROWS, MAX_COLUMNS, MAX_FILES, MAX_ENTRIES, MAX_OUT = 100, 50, 50, 20000, 100
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
    bundle = represented(value, "_repr_mimebundle_")
    for kind, method in KINDS.items():
        shown = bundle.get(kind) if isinstance(bundle, dict) else None
        if shown is None:
            shown = represented(value, method)
        if isinstance(shown, str) and kind in ("image/png", "image/jpeg"):
            shown = base64.b64decode(shown)
        if isinstance(shown, (bytes, bytearray)):
            return add(kind, data=bytes(shown))
        if isinstance(shown, str):
            if kind == "text/html" and not isinstance(value, Shown):
                add("text/plain", repr(value))
            return add(kind, shown)
    add("text/plain", repr(value))


# The first of them that a value has is shown.
KINDS = {"image/png": "_repr_png_", "image/jpeg": "_repr_jpeg_", "image/svg+xml": "_repr_svg_", "text/html": "_repr_html_",
         "text/markdown": "_repr_markdown_", "text/latex": "_repr_latex_"}


def represented(value, method):
    # A class has the methods of its values, which need one.
    if isinstance(value, type):
        return None
    try:
        shown = getattr(value, method)()
    except Exception:
        return None
    return shown[0] if isinstance(shown, tuple) and shown else shown


def display(*values, **_):
    for value in values:
        show(value)


class Shown:
    """What `IPython.display` has for one kind of output."""

    def __init__(self, data=None, url=None, filename=None, **_):
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data if data is not None else url

    def _repr_mimebundle_(self):
        data = self.data
        if isinstance(data, (bytes, bytearray)):
            for kind, start in (("image/png", b"\x89PNG"), ("image/jpeg", b"\xff\xd8")):
                if data.startswith(start):
                    return {kind: bytes(data)}
            data = data.decode("utf-8", "replace")
        return {self.kind: data if isinstance(data, str) else json.dumps(data, indent=2, default=str)}


def notebook():
    """Stands in for `IPython`, unless it is installed."""
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    kinds = {"HTML": "text/html", "Markdown": "text/markdown", "Latex": "text/latex", "Math": "text/latex",
             "SVG": "image/svg+xml", "Image": "text/plain", "JSON": "text/plain", "Pretty": "text/plain", "Code": "text/plain"}
    for name, kind in kinds.items():
        setattr(module, name, type(name, (Shown,), {"kind": kind}))
    module.display, module.clear_output = display, lambda *_, **__: None
    package.display, package.get_ipython = module, lambda: shell
    for it in (package, module):
        it.__path__ = []
        sys.modules[it.__name__] = it


class Displays:
    """Lets an installed `IPython` show values here: it would print their names."""

    def find_spec(self, name, path=None, target=None):
        if name != "IPython.core.display_functions":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.display, module.clear_output = display, lambda *_, **__: None

        spec.loader.exec_module = exec_module
        return spec


class MissingMagic(Exception):
    pass


class Shell:
    """What `%magic` and `!command` become."""

    SILENT = {"matplotlib", "load_ext", "reload_ext", "config", "autoreload", "precision", "pylab"}
    PROGRAMS = {"ls", "cat", "mkdir", "rm", "cp", "mv", "echo", "pwd"}

    def expanded(self, command):
        def value(found):
            try:
                return str(eval(found[1], space))
            except Exception:
                return found[0]

        command = re.sub(r"\{([^{}\n]+)\}", value, command)
        return re.sub(r"\$([A-Za-z_]\w*)", lambda it: str(space[it[1]]) if it[1] in space else it[0], command)

    def system(self, command, output=None):
        sys.stdout.flush()
        program = shutil.which("bash") or "/bin/sh"
        ran = subprocess.run([program, "-c", self.expanded(command)], stdout=output)
        space["_exit_code"] = ran.returncode
        return ran

    def getoutput(self, command):
        return self.system(command, subprocess.PIPE).stdout.decode("utf-8", "replace").splitlines()

    def run_line_magic(self, name, line):
        line = line.strip()
        if name in self.SILENT:
            return None
        if name in self.PROGRAMS:
            return self.system(f"{name} {line}") and None
        if name in ("pip", "conda"):
            program = f"'{sys.executable}' -m pip" if name == "pip" else name
            return self.system(f"{program} {line}") and None
        if name == "cd":
            os.chdir(os.path.expanduser(self.expanded(line) or "~"))
        elif name in ("env", "set_env"):
            key, sign, value = line.partition("=") if "=" in line else line.partition(" ")
            if not key:
                return dict(os.environ)
            if not sign:
                return os.environ.get(key)
            os.environ[key.strip()] = self.expanded(value.strip())
        elif name == "run":
            path, *words = line.split()
            before, sys.argv[:] = sys.argv[:], [path, *words]
            try:
                with open(path) as file:
                    exec(compile(file.read(), path, "exec", dont_inherit=True), space)
            finally:
                sys.argv[:] = before
        elif name in ("time", "timeit"):
            return self.run_cell_magic(name, "", line)
        else:
            raise MissingMagic(f"there is no magic `%{name}` here; write Python, or a command behind `!`")

    def run_cell_magic(self, name, line, body):
        if name in ("bash", "sh", "script"):
            self.system(body)
        elif name in ("writefile", "file"):
            path = line.replace("-a ", "", 1).strip()
            with open(path, "a" if line.startswith("-a ") else "w") as file:
                file.write(body)
        elif name in ("html", "markdown", "latex", "svg"):
            add("image/svg+xml" if name == "svg" else f"text/{name}", body)
        elif name in ("time", "timeit", "capture"):
            begun = time.perf_counter()
            value = evaluate(body, f"<{name}>")
            if name != "capture":
                print(f"Wall time: {time.perf_counter() - begun:.3g} s")
                return value
        else:
            raise MissingMagic(f"there is no magic `%%{name}` here; write Python, or a command behind `!`")


shell = Shell()


def plain(code):
    """The same in Python alone, line by line, of code with `%magic`, `!command` or `name?`."""
    first, _, body = code.lstrip().partition("\n")
    if cell := re.match(r"%%(\w+)\s*(.*)", first):
        return f"get_ipython().run_cell_magic({cell[1]!r}, {cell[2]!r}, {body!r})"
    lines, quotes = [], 0
    for line in code.split("\n"):
        # Not what stands in a text of several lines.
        lines.append(line if quotes % 2 else plain_line(line))
        quotes += line.count('"""') + line.count("'''")
    return "\n".join(lines)


def plain_line(line):
    if found := re.match(r"(\s*)(?:([\w., ]+?)\s*=\s*)?(!{1,2}|%)(\S.*)$", line):
        space, target, sign, rest = found.groups()
        if sign == "%":
            name, _, words = rest.partition(" ")
            call = f"get_ipython().run_line_magic({name!r}, {words!r})" if name.isidentifier() else None
        else:
            call = f"get_ipython().{'getoutput' if target or sign == '!!' else 'system'}({rest!r})"
            call = call if target or sign == "!!" else f"{call} and None"
        if call:
            return f"{space}{target} = {call}" if target else space + call
    if found := re.match(r"(\s*)([A-Za-z_][\w.]*)\?{1,2}\s*$", line):
        return f"{found[1]}help({found[2]})"
    return line


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
    value = evaluate(code, name)
    if value is not None:
        space["_"] = value
    return value


def evaluate(code, name):
    """Runs code, and gives the value of its last expression."""
    try:
        tree = ast.parse(code, name)
    except SyntaxError:
        # Only where it is not Python anyway.
        other = plain(code)
        if other == code:
            raise
        tree = ast.parse(other, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    awaited(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True))
    if last is None:
        return None
    return awaited(compile(ast.Expression(last.value), name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True))


loop = None


def awaited(code):
    global loop
    value = eval(code, space)
    if not code.co_flags & CO_COROUTINE:
        return value
    import asyncio

    if loop is None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    task = loop.create_task(value)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        # Nothing of an interrupted run goes on with the next one.
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        raise


CO_COROUTINE = 0x80


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
            results[request["run"]] = space[f"_{request['run']}"] = value
            if len(results) > MAX_OUT:
                oldest = next(iter(results))
                del results[oldest]
                space.pop(f"_{oldest}", None)
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


results = {}
space.update({"display": display, "get_ipython": lambda: shell, "Out": results})
try:
    installed = importlib.util.find_spec("IPython")
except Exception:
    installed = None
if installed:
    sys.meta_path.insert(0, Displays())
else:
    notebook()
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

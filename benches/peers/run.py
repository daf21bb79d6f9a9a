"""Programs that a benchmark starts: built, pinned, and gone when it ends, however it does."""
import json, pathlib, resource, shutil, signal, socket, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ("light-upstream", "paced-load", "tls-load", "websocket-load", "bare-hyper")


class Failed(Exception):
    """A program did not do what it was started for; the text says why."""


def note(text):
    print(text, file=sys.stderr, flush=True)


def built(binary, build=True):
    """Paths of the gateway and of the programs beside it, by name, after building what is not given."""
    names = EXAMPLES if binary else ("sluicegate", *EXAMPLES)
    if not build:
        told = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, capture_output=True,
                              text=True, check=True)
        folder = pathlib.Path(json.loads(told.stdout)["target_directory"]) / "dist"
        paths = {name: str(folder / ("examples" if name in EXAMPLES else "") / name) for name in names}
    else:
        note("building " + ", ".join(names))
        what = [part for name in names for part in ("--example" if name in EXAMPLES else "--bin", name)]
        told = subprocess.run(["cargo", "build", "--profile", "dist", "--message-format=json-render-diagnostics", *what], cwd=ROOT,
                              stdout=subprocess.PIPE, text=True, check=False)
        if told.returncode:
            raise Failed("cargo could not build them")
        lines = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
        paths = {line["target"]["name"]: line["executable"] for line in lines if line.get("executable")}
    if binary:
        paths["sluicegate"] = str(pathlib.Path(binary).resolve())
    for name, path in paths.items():
        if not pathlib.Path(path).exists():
            raise Failed(f"there is no {path} ({name}): run it without --no-build, or give another --binary")
    return paths


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Programs:
    """What runs beside this script. As a context: all of it is killed and its folder removed at the end."""

    def __init__(self, cores=(0, 1)):
        self.proxy_core, self.load_core = cores
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluicegate-bench-"))
        self.running = []

    def __enter__(self):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # thousands of connections, here and in what is started
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # an interrupt too: a shell may have it ignored
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, *_):
        self.stop(self.running)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def start(self, core, name, command, stdout=None, stdin="/dev/null"):
        """Starts a program on a core; what it says is kept in a log."""
        with open(self.folder / f"{name}.log", "w") as log, open(stdin) as told:
            process = subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], stdout=stdout or log, stderr=log,
                                       stdin=told)
        process.log = self.folder / f"{name}.log"
        self.running.append(process)
        return process

    def stop(self, processes):
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + 3
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = [process for process in self.running if process not in processes]

    def await_port(self, process, port, seconds=15):
        """Returns when something listens there; says what the program said if it ended or takes too long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        ended = "took too long" if process.poll() is None else f"ended with {process.returncode}"
        said = process.log.read_text(errors="replace").strip().splitlines()[-5:]
        raise Failed(f"{ended}: " + (" / ".join(said) or "and said nothing"))

    def upstream(self, path, *specs):
        """Starts the light upstream; the ports of its listeners, one for each spec (upstream.rs says which there are)."""
        process = self.start(self.load_core, "upstream", [path, *specs], stdout=subprocess.PIPE)
        return [int(process.stdout.readline()) for _ in specs]

    def on_load_core(self, command, seconds, stdin="/dev/null"):
        """Runs a program beside the upstream to its end, which is due in about so many seconds; what it printed."""
        command = ["taskset", "-c", str(self.load_core), *map(str, command)]
        with open(stdin) as told:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=told)
        self.running.append(process)
        try:
            out, _ = process.communicate(timeout=seconds + 30)
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[3]} did not end") from None
        finally:
            process.kill()
            process.wait()
            self.running.remove(process)
        if process.returncode:
            raise Failed(f"{command[3]} ended with {process.returncode}: {out.strip()[-300:]}")
        return out

    def certificate(self):
        """A self-signed P-256 certificate for api.example.com: its folder, with cert.pem, key.pem, both.pem."""
        folder = self.folder / "tls"
        if not folder.exists():
            folder.mkdir()
            made = subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                 "-subj", "/CN=api.example.com", "-addext", "subjectAltName=DNS:api.example.com,DNS:localhost",
                 "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], capture_output=True, text=True, check=False)
            if made.returncode:
                raise Failed(f"openssl made no certificate: {made.stderr.strip()}")
            (folder / "both.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
            for file in folder.iterdir():
                file.chmod(0o644)
        return folder

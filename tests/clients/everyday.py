#!/usr/bin/env python3
"""The clients that people use, through the gateway: curl, httpx over HTTP/2, websockets, and a browser.

    python3 -m venv v && v/bin/pip install 'httpx[http2]' websockets
    v/bin/python tests/clients/everyday.py target/release/sluicegate

It starts a gateway with TLS (openssl makes the certificates) before a server for WebSocket and a demo answer, and
says of each client what it saw. A client that is not installed is named; the exit code is 1 if one that is
failed.
"""
import asyncio, os, shutil, socket, ssl, subprocess, sys, tempfile, threading, time

program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/sluicegate")
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
failed = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


PLAIN, TLS, DEMO, CHAT = (free_port() for _ in range(4))
CONFIG = f"""
listen:
  - 127.0.0.1:{PLAIN}
  - {{name: secure, address: "127.0.0.1:{TLS}", tls: {{certificates: [{{cert: leaf.pem, key: leaf.key}}]}}}}
  - {{name: demo, address: "127.0.0.1:{DEMO}"}}
limits:
  few: {{key: ip, rate: 3/h}}
  at-once: {{key: ip, algorithm: concurrency, max: 100}}
upstreams:
  demo: {{servers: ["http://127.0.0.1:{DEMO}"]}}
  chat: {{servers: ["http://127.0.0.1:{CHAT}"]}}
routes:
  - {{match: {{listener: demo}}, respond: {{status: 200, body: "<p id=here>demo</p>", content_type: text/html}}}}
  - {{match: {{path: /chat}}, upstream: chat, limits: [at-once]}}
  - {{match: {{path: /few}}, upstream: demo, limits: [few]}}
  - {{match: {{path: /*}}, upstream: demo, limits: [at-once]}}
"""


def sh(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def certificates():
    sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
       "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", check=True)
    sh("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "leaf.key",
       "-out", "leaf.csr", "-subj", "/CN=localhost", check=True)
    with open("leaf.ext", "w") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    sh("openssl", "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
       "-days", "20", "-extfile", "leaf.ext", "-out", "leaf.pem", check=True)
    os.chmod("leaf.key", 0o600)


def says(name, good, what=""):
    print(f"{'ok    ' if good else 'FAILED'} {name} {what}")
    if not good:
        failed.append(name)


def curl():
    for name, arguments, version in [
        ("HTTP/1.1", ["--http1.1", f"http://127.0.0.1:{PLAIN}/"], "1.1"),
        ("HTTP/1.0", ["--http1.0", f"http://127.0.0.1:{PLAIN}/"], "1"),
        ("HTTP/2 by prior knowledge", ["--http2-prior-knowledge", f"http://127.0.0.1:{PLAIN}/"], "2"),
        ("HTTP/2 over TLS", ["--http2", "--cacert", "ca.pem", f"https://localhost:{TLS}/"], "2"),
        ("HTTP/1.1 over TLS", ["--http1.1", "--cacert", "ca.pem", f"https://localhost:{TLS}/"], "1.1"),
    ]:
        out = sh("curl", "-s", "-m", "10", "-w", " %{http_code} %{http_version}", *arguments).stdout
        says(f"curl {name}", out.startswith("<p id=here>demo</p> 200") and out.split()[-1] in (version, "1.1" if version == "1" else version), out[-8:])
    answers = [sh("curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{PLAIN}/few").stdout
               for _ in range(5)]
    says("curl is refused after three", answers == ["200"] * 3 + ["429"] * 2, " ".join(answers))
    with open("large", "wb") as file:
        file.write(os.urandom(5 << 20))
    out = sh("curl", "-s", "-m", "20", "-T", "large", "-w", " %{http_code}", f"http://127.0.0.1:{PLAIN}/few").stdout
    says("curl sees the refusal of an upload of 5 MiB", out.endswith(" 429"), out[-4:])


def httpx_h2():
    try:
        import httpx
    except ImportError:
        return print("absent httpx")
    context = ssl.create_default_context(cafile="ca.pem")

    async def many():
        async with httpx.AsyncClient(http2=True, verify=context, timeout=10) as client:
            answers = await asyncio.gather(*(client.get(f"https://localhost:{TLS}/") for _ in range(50)))
            return {(a.status_code, a.http_version, a.text) for a in answers}
    seen = asyncio.run(many())
    says("httpx: 50 at once over HTTP/2", seen == {(200, "HTTP/2", "<p id=here>demo</p>")}, str(seen)[:60])


def chat():
    try:
        from websockets.asyncio.client import connect
        from websockets.asyncio.server import serve
    except ImportError:
        return print("absent websockets")
    ready = threading.Event()

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    async def server():
        async with serve(echo, "127.0.0.1", CHAT, max_size=None):
            ready.set()
            await asyncio.Future()
    threading.Thread(target=lambda: asyncio.run(server()), daemon=True).start()
    ready.wait(10)
    context = ssl.create_default_context(cafile="ca.pem")

    async def talk(url, **more):
        async with connect(url, max_size=None, **more) as connection:
            for message in ["hello", b"\x00\xff" * 100, "x" * 1_000_000]:
                await connection.send(message)
                if await asyncio.wait_for(connection.recv(), 10) != message:
                    return False
            await connection.ping()
        return connection.close_code == 1000
    says("websockets", asyncio.run(talk(f"ws://127.0.0.1:{PLAIN}/chat")))
    says("websockets over TLS", asyncio.run(talk(f"wss://localhost:{TLS}/chat", ssl=context)))


def browser():
    name = next((name for name in ["chromium", "chromium-browser", "google-chrome"] if shutil.which(name)), None)
    if not name:
        return print("absent chromium")
    out = sh(name, "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom",
             f"--user-data-dir={folder.name}/profile", f"https://localhost:{TLS}/").stdout
    says("chromium", 'id="here">demo' in out, out[:60].strip())


certificates()
with open("gateway.yaml", "w") as file:
    file.write(CONFIG)
gateway = subprocess.Popen([program], stderr=open("log", "w"))
try:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", TLS)).close()
            break
        except OSError:
            time.sleep(0.01)
    else:
        sys.exit(f"the gateway did not start:\n{open('log').read()}")
    for client in (curl, httpx_h2, chat, browser):
        client()
finally:
    gateway.terminate()
    gateway.wait(40)
sys.exit(bool(failed))

"""alone.py OUT FOLDER: the programs of the tarball and of the image in roots without anything else. Run by `packaging/test`
in a network namespace of its own, where a name server of this script may have port 53.

The program has to find a server by its name over DNS and to verify it with the certificates of the image."""

import fcntl
import hashlib
import http.client
import http.server
import io
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

OUT, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
NAME = "api.test"
CONFIG = """
listen: [127.0.0.1:8080]
admin: {address: 127.0.0.1:9090}
access_log: off
limits: {everyone: {key: global, rate: 1/min, burst: 1}}
upstreams: {api: {servers: ["https://api.test:8443"]}}
routes: [{upstream: api, limits: [everyone]}]
"""


def loopback_up():
    """What `ip link set lo up` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def serve_names():
    """A name server that knows NAME as 127.0.0.1, and has no other types of records."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))

    def answer():
        while True:
            query, client = server.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            question, kind = query[12:end], struct.unpack("!H", query[end - 4 : end - 2])[0]
            asked = b"".join(bytes([len(label)]) + label for label in NAME.encode().split(b".")) + b"\0"
            found = question[:-4].lower() == asked and kind == 1
            head = query[:2] + struct.pack("!HHHHH", 0x8580, 1, int(found), 0, 0)
            record = b"\xc0\x0c" + struct.pack("!HHIH4s", 1, 1, 60, 4, socket.inet_aton("127.0.0.1"))
            server.sendto(head + question + (record if found else b""), client)

    threading.Thread(target=answer, daemon=True).start()


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_):
        pass


def serve_tls():
    """An API at NAME:8443. Returns its certificate, which is its own authority."""
    key, cert, config = FOLDER / "api.key", FOLDER / "api.crt", FOLDER / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = name\n[name]\n")  # the default one makes an authority
    subprocess.run(
        ["openssl", "req", "-x509", "-config", config, "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-addext", "basicConstraints=CA:FALSE"]
        + ["-keyout", key, "-out", cert],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), Hello)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return cert.read_text()


def unpack_image(root):
    """Unpacks the layers as an engine does, and returns the configuration of the image. Every digest is checked."""
    archive = tarfile.open(next(OUT.glob("*-oci.tar")))
    read = lambda name: archive.extractfile(name).read()

    def blob(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        data = read(f"blobs/{algorithm}/{digest}")
        assert hashlib.new(algorithm, data).hexdigest() == digest and len(data) == descriptor["size"]
        return data

    assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    [described] = json.loads(read("index.json"))["manifests"]
    manifest = json.loads(blob(described))
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz") as files:
            files.extractall(root)
    return json.loads(blob(manifest["config"]))["config"]


def ask(port, path):
    connection = http.client.HTTPConnection(f"127.0.0.1:{port}", timeout=5)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def wait_until_ready(child):
    deadline = time.monotonic() + 10
    while child.poll() is None and time.monotonic() < deadline:
        try:
            if ask(9090, "/readyz")[0] == 200:
                return
        except OSError:
            pass
        threading.Event().wait(0.05)
    raise SystemExit(f"the gateway is not ready: {child.poll()}")


def run(root, user, command, folder):
    """A process in a root, of a user without a name there."""

    def enter():
        os.chroot(root)
        os.chdir(folder)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    return subprocess.Popen(command, preexec_fn=enter, env={"PATH": "/usr/local/bin"})


def drive(child, requests):
    try:
        wait_until_ready(child)
        for port, path, expected in requests:
            found = ask(port, path)
            assert found[0] == expected, (port, path, found)
    finally:
        child.terminate()
        code = child.wait(timeout=20)
    assert code == 0, code


def main():
    loopback_up()
    serve_names()
    certificate = serve_tls()
    through = [(8080, "/v1/hello", 200), (8080, "/v1/hello", 429)]

    root = FOLDER / "image"
    root.mkdir()
    image = unpack_image(root)
    user = int(image["User"].split(":")[0])
    command = image["Entrypoint"] + image["Cmd"]
    print("packaging/test: image: the demo, as user", user, *command, flush=True)
    drive(run(root, user, command, image["WorkingDir"]), [(8080, "/v1/hello", 200)])

    (root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")  # as the engine does
    (root / "etc/sluicegate/gateway.yaml").write_text(CONFIG)
    print("packaging/test: image: an authority that is not in it is refused", flush=True)
    drive(run(root, user, command, image["WorkingDir"]), [(8080, "/v1/hello", 502)])
    with open(root / "etc/ssl/certs/ca-certificates.crt", "a") as authorities:
        authorities.write(certificate)
    print("packaging/test: image: names over DNS, certificates of the image", flush=True)
    drive(run(root, user, command, image["WorkingDir"]), through)

    root = FOLDER / "tarball"
    root.mkdir()
    with tarfile.open(next(OUT.glob("*-linux.tar.gz"))) as archive:
        archive.extractall(root)
    [unpacked] = root.iterdir()
    print("packaging/test: tarball: the demo, in a folder with nothing else", flush=True)
    inside = f"/{unpacked.name}"
    drive(run(root, user, [f"{inside}/bin/sluicegate"], f"{inside}/etc"), [(8080, "/v1/hello", 200)])


main()

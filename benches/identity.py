#!/usr/bin/env python3
"""What it costs to know who is asking: whose API key a request carries, and what its token says.

    benches/identity.py target/dist/sluicegate [CONSUMERS] [KEYS] [ROUNDS]

Makes a file of CONSUMERS (1,000,000), says how long the gateway takes to load it and what memory it holds, and
then compares the processor time of a request with and without: a lookup of the consumer, a token that is
remembered, and one whose claims are forwarded as two headers; in interleaved rounds of one run, over which the
same requests are sent to all. The requests carry KEYS (100) different keys or tokens. Needs wrk; one gateway
worker on core 0, wrk and the upstream on core 1.
"""
import base64, hashlib, hmac, json, os, re, socket, statistics, subprocess, sys, tempfile, time

program = os.path.abspath(sys.argv[1])
consumers = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
keys = int(sys.argv[3]) if len(sys.argv) > 3 else 100
ROUNDS, SECONDS = int(sys.argv[4]) if len(sys.argv) > 4 else 11, 1
UPSTREAM = 18499
SECRET = "a secret of thirty-two bytes at least"

RULES = """listen: [127.0.0.1:{port}]
workers: 1
access_log: off
{auth}
limits: {{l: {{key: {key}, rate: 1000000000/s}}}}
upstreams: {{u: {{servers: [http://127.0.0.1:{upstream}]}}}}
routes:
  - {{name: forwarded, match: {{path: /forwarded}}, upstream: u, limits: [l]}}
  - {{name: answered, respond: {{status: 200}}, limits: [l]}}
"""
# The same requests for all: each carries the key and the token, of which a gateway looks at what it is told to.
LUA = """local n = 0
function init(args)
  path = args[1]; keys = {}
  for line in io.lines("keys") do
    local key, token = line:match("(%S+) (%S+)")
    keys[#keys + 1] = {["X-Api-Key"] = key, ["Authorization"] = "Bearer " .. token}
  end
end
function request()
  n = (n * 1103515245 + 12345) % 2147483648
  return wrk.format("GET", path, keys[n % #keys + 1])
end
"""


def token(n):
    def encoded(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    claims = {"sub": f"user-{n}", "tenant": f"tenant-{n % 7}", "iss": "https://id.example.com", "aud": "api",
              "exp": int(time.time()) + 86400, "scope": "read write"}
    signed = encoded(b'{"alg":"HS256","typ":"JWT"}') + b"." + encoded(json.dumps(claims).encode())
    return (signed + b"." + encoded(hmac.digest(SECRET.encode(), signed, "sha256"))).decode()


def write(name, text):
    with open(name, "w") as file:
        file.write(text)


def start(name, port, core):
    begun = time.monotonic()
    command = ["taskset", "-c", str(core), program, "run", "--config", name]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, time.monotonic() - begun
        except OSError:
            time.sleep(0.005)
    sys.exit(f"{name} did not start")


def processor_time(process):
    tasks = f"/proc/{process.pid}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks))


def memory(process, name):
    return int(re.search(rf"{name}:\s+(\d+)", open(f"/proc/{process.pid}/status").read()).group(1)) // 1024


def ask(port, path):
    command = ["taskset", "-c", "1", "wrk", "-t1", "-c64", f"-d{SECONDS}s", "-s", "keys.lua",
               f"http://127.0.0.1:{port}", "--", path, str(keys)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in out, out
    return int(re.search(r"(\d+) requests in", out).group(1))


folder = tempfile.TemporaryDirectory()  # gone with the program
os.chdir(folder.name)
with open("consumers.yaml", "w") as file:
    for n in range(consumers):
        digest = hashlib.sha256(b"sk_%d" % n).hexdigest()
        file.write(f"- name: customer-{n}\n  key: sha256:{digest}\n  plan: pro\n  metadata: {{contact: c{n}@example.com}}\n")
os.chmod("consumers.yaml", 0o640)
write("keys", "".join(f"sk_{n} {token(n)}\n" for n in range(keys)))
jwt = f"auth: {{{{jwt: {{{{issuer: 'https://id.example.com', audience: api, secret: '{SECRET}'{{}}}}}}}}}}"
GATEWAYS = [
    ("without", "", "api_key"),
    ("consumer", "auth: {api_key: {consumers: consumers.yaml, required: true, forward: false}}", "consumer"),
    ("consumer, told", "auth: {api_key: {consumers: consumers.yaml, required: true}}", "consumer"),
    ("token", jwt.format(""), "user"),
    ("token, two claims told", jwt.format(", forward: {X-User: sub, X-Tenant: tenant}"), "user"),
]
write("upstream.yaml", f"listen: [127.0.0.1:{UPSTREAM}]\nworkers: 1\naccess_log: off\nroutes: [{{respond: {{status: 200, body: hello}}}}]\n")
write("keys.lua", LUA)
upstream, _ = start("upstream.yaml", UPSTREAM, 1)
started = [upstream]
try:
    sides = []
    for n, (name, auth, key) in enumerate(GATEWAYS):
        port = 18441 + n
        write(f"{n}.yaml", RULES.format(port=port, upstream=UPSTREAM, auth=auth, key=key))
        process, took = start(f"{n}.yaml", port, 0)
        started.append(process)
        sides.append((name, process, port))
        if name == "consumer":
            print(f"{consumers} consumers, {os.path.getsize('consumers.yaml') >> 20} MiB: serving after {took:.2f} s, "
                  f"{memory(process, 'VmRSS')} MiB")
    for path in ["/forwarded", "/answered"]:
        spent = {name: [] for name, _, _ in sides}
        for turn in range(ROUNDS):
            for name, process, port in sides[:: 1 if turn % 2 else -1]:
                before = processor_time(process)
                count = ask(port, path)
                spent[name].append((processor_time(process) - before) / count / 1000)
        plain = spent["without"]
        for name, times in spent.items():
            # Of pairs of the same round: what else the machine did meanwhile hit both.
            ratio = statistics.median(time / beside for time, beside in zip(times, plain))
            print(f"{path} {name}: {statistics.median(times):.2f} us, {ratio:.3f}")
finally:
    for process in started:
        process.terminate()
    for process in started:
        process.wait()

#!/usr/bin/env python3
"""What it costs to know whose API key a request carries.

    benches/consumers.py target/release/sluicegate [CONSUMERS] [KEYS]

Makes a file of CONSUMERS (1,000,000), says how long the gateway takes to load it and what memory it holds, and
then compares the processor time of a request with and without the lookup, in interleaved rounds of one run. The
requests carry KEYS (100) different keys. Needs wrk; one gateway worker on core 0, wrk and the upstream on core 1.
"""
import hashlib, os, re, socket, statistics, subprocess, sys, tempfile, time

program = os.path.abspath(sys.argv[1])
consumers = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
keys = int(sys.argv[3]) if len(sys.argv) > 3 else 100
ROUNDS, SECONDS = 9, 2
UPSTREAM, WITHOUT, WITH = 18499, 18441, 18442

RULES = """listen: [127.0.0.1:{port}]
workers: 1
{auth}
limits: {{l: {{key: {key}, rate: 1000000000/s}}}}
upstreams: {{u: {{servers: [http://127.0.0.1:{upstream}]}}}}
routes:
  - {{name: forwarded, match: {{path: /forwarded}}, upstream: u, limits: [l]}}
  - {{name: answered, respond: {{status: 200}}, limits: [l]}}
"""
LUA = """local n = 0
function init(args) path = args[1]; keys = tonumber(args[2]) end
function request()
  n = (n * 1103515245 + 12345) % 2147483648
  return wrk.format("GET", path, {["X-Api-Key"] = "sk_" .. (n % keys)})
end
"""


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
auth = "auth: {api_key: {consumers: consumers.yaml, required: true}}"
write("upstream.yaml", f"listen: [127.0.0.1:{UPSTREAM}]\nworkers: 1\nroutes: [{{respond: {{status: 200, body: hello}}}}]\n")
write("without.yaml", RULES.format(port=WITHOUT, upstream=UPSTREAM, auth="", key="api_key"))
write("with.yaml", RULES.format(port=WITH, upstream=UPSTREAM, auth=auth, key="consumer"))
write("keys.lua", LUA)
started = []
try:
    for name, port, core in [("upstream", UPSTREAM, 1), ("without", WITHOUT, 0), ("with", WITH, 0)]:
        process, took = start(name + ".yaml", port, core)
        started.append(process)
    print(f"{consumers} consumers, {os.path.getsize('consumers.yaml') >> 20} MiB: serving after {took:.2f} s")
    sides = [(started[1], WITHOUT), (started[2], WITH)]
    for path in ["/forwarded", "/answered"]:
        spent = ([], [])
        for turn in range(ROUNDS):
            for side in (0, 1) if turn % 2 else (1, 0):
                process, port = sides[side]
                before = processor_time(process)
                count = ask(port, path)
                spent[side].append((processor_time(process) - before) / count / 1000)
        without, with_lookup = map(statistics.median, spent)
        print(f"{path}: {without:.2f} us without, {with_lookup:.2f} us with, {with_lookup / without:.3f}")
    print(f"memory: {memory(started[2], 'VmRSS')} MiB now, {memory(started[2], 'VmHWM')} MiB at most")
finally:
    for process in started:
        process.terminate()
    for process in started:
        process.wait()

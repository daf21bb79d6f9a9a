#!/usr/bin/env python3
"""CPU per request of sluicegate beside nginx and HAProxy, in one run.

    cargo build --release && python3 benches/peers/compare.py [--rounds 5] [--seconds 4]

Each proxy has one worker, pinned to core 0; wrk and the upstream share core 1. Rounds are interleaved and their
order alternates, so that what else the machine does falls on all of them alike. Judge the paired ratios, not the
absolute figures. Needs Debian's wrk, nginx-light and (optional) haproxy.

Scenarios: A forwarded, keep-alive, 64 connections, 100-byte answer; B refused (429) on the same route.

nginx and sluicegate run twice. "nginx" limits and forwards, and says nothing to anybody; "nginx+headers" also gives
clients and the upstream what sluicegate gives them (X-Forwarded-*, a request id, the two families of limit headers,
Retry-After, a JSON body), with fixed values where nginx cannot know the real ones. "sluicegate" is as shipped,
"sluicegate-quiet" has `headers: []` and tells clients nothing of limits, as nginx does. Compare like with like.
"""
import argparse, os, pathlib, shutil, socket, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")

LUA = """
local n = 0
request = function()
  n = (n + 1) % %KEYS%
  return wrk.format("GET", "/v1/items?page=2", {
    ["Host"] = "api.example.com", ["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    ["Accept"] = "application/json", ["Accept-Language"] = "en-GB,en;q=0.9", ["Accept-Encoding"] = "gzip, br",
    ["Cookie"] = "session=0123456789abcdef0123456789abcdef", ["Referer"] = "https://www.example.com/items",
    ["X-Api-Key"] = "key-" .. n })
end
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def upstream_conf(folder, port):
    return f"""
worker_processes 1; daemon off; pid {folder}/up.pid; error_log {folder}/up.log crit;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {folder}/up-b; proxy_temp_path {folder}/up-p;
  fastcgi_temp_path {folder}/up-f; uwsgi_temp_path {folder}/up-u; scgi_temp_path {folder}/up-s;
  keepalive_requests 100000000; server {{ listen 127.0.0.1:{port};
  location / {{ default_type application/json; return 200 '{"x" * 100}'; }} }} }}
"""


REQUEST_HEADERS = """
      proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Request-Id $request_id;"""

LIMIT_HEADERS = """
      add_header X-RateLimit-Limit 1000 always; add_header X-RateLimit-Remaining 999 always;
      add_header X-RateLimit-Reset 1 always; add_header RateLimit '"per-key";r=999;t=1' always;
      add_header RateLimit-Policy '"per-key";q=1000;w=60' always;"""

REFUSAL = """
    error_page 429 @refused;
    location @refused { default_type application/problem+json;""" + LIMIT_HEADERS + """
      add_header X-RateLimit-Retry-After 60 always; add_header Retry-After 60 always;
      add_header Cache-Control no-store always; add_header X-Request-Id $request_id always;
      return 429 '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"the quota is used up; try again in 60 seconds","request_id":"$request_id","violated-policies":["per-key"],"retry_after":60}'; }"""


def nginx_conf(folder, port, upstream, rate, headers):
    request, limit, refusal = (REQUEST_HEADERS, LIMIT_HEADERS, REFUSAL) if headers else ("", "", "")
    return f"""
worker_processes 1; daemon off; pid {folder}/ng.pid; error_log {folder}/ng.log crit;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {folder}/ng-b; proxy_temp_path {folder}/ng-p;
  fastcgi_temp_path {folder}/ng-f; uwsgi_temp_path {folder}/ng-u; scgi_temp_path {folder}/ng-s;
  keepalive_requests 100000000;
  limit_req_zone $http_x_api_key zone=keys:32m rate={rate}; limit_req_status 429;
  upstream api {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} reuseport;{refusal}
    location / {{{limit}{request} limit_req zone=keys burst=1000 nodelay; proxy_pass http://api; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr; }} }} }}
"""


def haproxy_conf(folder, port, upstream, refuse):
    limit = 0 if refuse else 100000000
    return f"""
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend edge
  bind 127.0.0.1:{port}
  stick-table type string size 200k expire 1h store http_req_rate(1h)
  http-request track-sc0 hdr(x-api-key)
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit} }}
  option forwardfor
  default_backend api
backend api
  server s1 127.0.0.1:{upstream}
"""


def own_conf(port, upstream, rate, burst, headers):
    return f"""
headers: [{headers}]
listen: [127.0.0.1:{port}]
limits:
  per-key: {{key: api_key | ip, rate: {rate}, burst: {burst}}}
upstreams:
  api: {{servers: [http://127.0.0.1:{upstream}]}}
routes:
  - {{name: api, match: {{path: /v1/*}}, upstream: api, limits: [per-key]}}
"""


def cpu(pid):
    """User and system seconds of all processes of the tree below pid, threads included."""
    user, system, pids = 0, 0, [pid]
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for p in pids + [int(c) for c in children]:
        fields = pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
        user += int(fields[11])
        system += int(fields[12])
    return user / TICK, system / TICK


def wait_for(port):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def load(port, seconds, connections, script):
    out = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s",
                          script, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
    done, refused, p99 = 0, 0, "?"
    for line in out.splitlines():
        if "requests in" in line:
            done = int(line.split()[0])
        if "Non-2xx" in line:
            refused = int(line.rsplit(" ", 1)[1])
        if line.strip().startswith("99%"):
            p99 = line.split()[1]
    return done, refused, p99


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--seconds", type=int, default=4)
    args.add_argument("--connections", type=int, default=64)
    args.add_argument("--binary", default=str(ROOT / "target/release/sluicegate"))
    args = args.parse_args()
    folder = tempfile.mkdtemp(prefix="sluicegate-bench-")
    script = f"{folder}/load.lua"
    pathlib.Path(script).write_text(LUA.replace("%KEYS%", "1000"))
    upstream, running = free_port(), []

    def start(core, *command):
        process = subprocess.Popen(["taskset", "-c", str(core), *command], stderr=subprocess.DEVNULL)
        running.append(process)
        return process

    def write(name, text):
        path = f"{folder}/{name}"
        pathlib.Path(path).write_text(text)
        return path

    try:
        start(1, "nginx", "-p", folder, "-c", write("up.conf", upstream_conf(folder, upstream)))
        wait_for(upstream)
        for scenario, refuse in (("A forwarded", False), ("B refused", True)):
            peers = {}
            def peer(name, command):
                port = free_port()
                process = start(0, *command(port))
                wait_for(port)
                peers[name] = (port, process.pid)
            rate, burst = ("1/d", 1) if refuse else ("1000000000/s", 1000000000)
            for name, headers in (("sluicegate", "x-ratelimit, ietf, retry-after"), ("sluicegate-quiet", "")):
                peer(name, lambda port: [args.binary, "run", "--workers", "1", "--config",
                     write(f"{name}-{refuse}.yaml", own_conf(port, upstream, rate, burst, headers))])
            for name, headers in (("nginx", False), ("nginx+headers", True)):
                sub = f"{folder}/{name}-{refuse}"
                os.mkdir(sub)
                peer(name, lambda port: ["nginx", "-p", sub, "-c", write(f"{name}-{refuse}.conf",
                     nginx_conf(sub, port, upstream, "1r/m" if refuse else "1000000r/s", headers)
                     .replace("burst=1000 nodelay", "" if refuse else "burst=100000 nodelay"))])
            if shutil.which("haproxy"):
                peer("haproxy", lambda port: ["haproxy", "-db", "-f",
                     write(f"ha-{refuse}.cfg", haproxy_conf(folder, port, upstream, refuse))])
            for port, _ in peers.values():
                load(port, 1, args.connections, script)  # warm up, and spend every key's first request
            results = {name: [] for name in peers}
            for turn in range(args.rounds):
                for name in (list(peers) if turn % 2 == 0 else list(reversed(peers))):
                    port, pid = peers[name]
                    before = cpu(pid)
                    done, refused, p99 = load(port, args.seconds, args.connections, script)
                    if (refused < done * 0.99) if refuse else refused:
                        sys.exit(f"{name}: {refused} of {done} answers were not 2xx in scenario {scenario}")
                    user, system = ((b - a) / done * 1e6 for a, b in zip(before, cpu(pid)))
                    results[name].append((user + system, done / args.seconds, p99, user))
            print(f"\n{scenario}, {args.connections} connections, {args.rounds} rounds of {args.seconds} s")
            print(f"{'':17} {'CPU us/req':>10} {'user':>6} {'min':>7} {'max':>7} {'/nginx':>8} {'/+headers':>9} {'req/s':>9}  p99")
            for name, rows in results.items():
                costs = [row[0] for row in rows]
                ratios, fair = ([own[0] / other[0] for own, other in zip(rows, results[peer])]
                                for peer in ("nginx", "nginx+headers"))
                print(f"{name:17} {statistics.median(costs):10.2f} "
                      f"{statistics.median(r[3] for r in rows):6.2f} {min(costs):7.2f} {max(costs):7.2f} "
                      f"{statistics.median(ratios):8.2f} {statistics.median(fair):9.2f} "
                      f"{statistics.median(r[1] for r in rows):9.0f}  {rows[-1][2]}")
            for process in running[1:]:
                process.terminate()
            for process in running[1:]:
                process.wait()
            del running[1:]
    finally:
        for process in running:
            process.terminate()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

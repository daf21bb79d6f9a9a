"""The load: wrk, h2load and programs of our own on the core beside the gateway's, and what they say of the answers."""
import dataclasses, http.client, re, ssl

from run import Failed

# 8 headers; some 375 bytes with the request line, X-Api-Key being the one that differs.
HOST = "api.example.com"
PATH = "/v1/items?page=2"
HEADERS = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36",
    "Accept": "application/json", "Accept-Language": "en-GB,en;q=0.9", "Accept-Encoding": "gzip, br",
    "Cookie": "session=0123456789abcdef0123456789abcdef; theme=dark", "Referer": "https://www.example.com/items",
}

# The requests are made before the first is sent, for the load is to cost as little as it can.
TURNS = """
local requests, n = {}, 0
init = function(args)
  local headers = {HEADERS}
  for i = 1, KEYS do
    headers["X-Api-Key"] = "key-" .. i
    requests[i] = wrk.format("GET", PATH, headers)
  end
end
request = function() n = n % KEYS + 1; return requests[n] end
"""

# The same with a body of so many bytes, in one piece or in chunks of at most 16 KiB.
UPLOADS = """
local requests, n = {}, 0
init = function(args)
  local headers, body = {HEADERS}, string.rep("x", UPLOAD)
  for i = 1, KEYS do
    headers["X-Api-Key"] = "key-" .. i
    if CHUNKED then
      headers["Transfer-Encoding"] = "chunked"
      local chunks, piece = {}, 16384
      for at = 1, UPLOAD, piece do
        local part = body:sub(at, at + piece - 1)
        chunks[#chunks + 1] = string.format("%x\\r\\n%s\\r\\n", #part, part)
      end
      local head = wrk.format("POST", PATH, headers):gsub("\\r\\n\\r\\n$", "\\r\\n"):gsub("Content%-Length: 0\\r\\n", "")
      requests[i] = head .. "\\r\\n" .. table.concat(chunks) .. "0\\r\\n\\r\\n"
    else
      requests[i] = wrk.format("POST", PATH, headers, body)
    end
  end
end
request = function() n = n % KEYS + 1; return requests[n] end
"""

# An upgrade with the key of RFC 6455 §1.3, whose answer the upstream and the load know.
UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}

# Every request with a key that none had before: the first argument says where this run begins. A product with an odd
# number, modulo 2^32, is different for each n, and looks random.
FRESH = """
local n, headers = 0, {HEADERS}
init = function(args) n = tonumber(args[1]) end
request = function()
  n = n + 1
  headers["X-Api-Key"] = string.format("k%08x", n * 1048573 % 4294967296)
  return wrk.format("GET", PATH, headers)
end
"""

# Keys out of so many, in an order that looks random; the first argument says from where on they come in turn instead, so
# that all of them are sent once.
SCATTERED = """
local n, turn, head = 1, nil, nil
init = function(args)
  turn = tonumber(args[1])
  local headers = {HEADERS}
  headers["X-Api-Key"] = "@"
  head, tail = wrk.format("GET", PATH, headers):match("^(.*)@(.*)$")
end
request = function()
  local key
  if turn then
    key, turn = turn % KEYS, turn + 1
  else
    n = (n * 1103515245 + 12345) % 2147483648
    key = math.floor(n / 2147483648 * KEYS)
  end
  return head .. key .. tail
end
"""


@dataclasses.dataclass
class Answers:
    """What came back. `other` are those of statuses that were not asked for, connections that failed, and timeouts."""
    done: int = 0
    wanted: int = 0
    other: int = 0


def script(template=TURNS, keys=1000, close=False, path=PATH, headers=None, upload=0, chunked=False):
    """A script for wrk. `headers` take the place of the usual ones, Host and X-Api-Key apart."""
    if upload:
        # All requests are made beforehand: fewer keys, so that they fit into memory.
        template = UPLOADS.replace("UPLOAD", str(upload)).replace("CHUNKED", str(chunked).lower())
        keys = max(1, min(keys, (64 << 20) // upload))
    headers = {"Host": HOST, **(HEADERS if headers is None else headers), **({"Connection": "close"} if close else {})}
    lua = ", ".join(f'["{name}"] = "{value}"' for name, value in headers.items())
    return template.replace("{HEADERS}", "{" + lua + "}").replace("KEYS", str(keys)).replace("PATH", f'"{path}"')


def requests(method="GET", keys=1000, headers=None):
    """The requests that programs of our own send, as a text; `headers` are added to the usual ones."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": HOST, **HEADERS, **(headers or {})}.items())
    return "".join(f"{method} {PATH} HTTP/1.1\r\n{lines}X-Api-Key: key-{key}\r\n\r\n" for key in range(1, keys + 1))


def told(text):
    """The names and numbers that a program of our own prints."""
    words = text.split()
    return dict(zip(words[::2], map(float, words[1::2])))


def wrk(programs, url, seconds, connections, lua, status=200, arguments=(), close=False):
    """Drives requests of the script as fast as they are answered."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", lua, url, "--", *arguments]
    out = programs.on_load_core(command, seconds)
    done = int(re.search(r"(\d+) requests in", out).group(1))
    odd = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    refused = int(odd.group(1)) if odd else 0
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    connect, read, write, timeout = map(int, errors.groups()) if errors else (0, 0, 0, 0)
    wanted = done - refused if status == 200 else refused
    # Where each answer ends its connection, wrk counts some of those ends as errors of reading, though it has the answer.
    return Answers(done, wanted, done - wanted + connect + timeout + (0 if close else read + write))


def h2load(programs, url, seconds, connections, streams, key="key-1", body=None):
    """Drives requests over HTTP/2, all with one key: h2load cannot change a header from one to the next. `body` is a file: then
    they are POSTs."""
    headers = [f"{name.lower()}: {value}" for name, value in {":authority": HOST, **HEADERS, "X-Api-Key": key}.items()]
    command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", *(f"-H{line}" for line in headers),
               *(["-d", body] if body else []), url + PATH]
    out = programs.on_load_core(command, seconds)
    done = int(re.search(r"(\d+) done", out).group(1))
    wanted = int(re.search(r"status codes: (\d+) 2xx", out).group(1))
    return Answers(done, wanted, done - wanted)


def handshakes(programs, program, port, kind, seconds, connections, requests):
    """Drives requests over TLS, each on a connection with a handshake of a kind: "full", or "resumed", a session of one before.
    Not wrk: it resumes sessions, though nothing says so."""
    out = programs.on_load_core([program, f"127.0.0.1:{port}", kind, 0, connections, seconds], seconds, stdin=requests)
    found = told(out)
    # The first of each thread has no ticket yet.
    if kind == "resumed" and (full := found["full"] - connections) > 0.01 * found["done"]:
        raise Failed(f"{full:.0f} of {found['done']:.0f} handshakes resumed no session")
    return Answers(int(found["done"]), int(found["done"] - found["other"]), int(found["other"]))


def websocket(programs, program, port, seconds, connections, size, requests):
    """Drives messages over WebSocket, which are sent back; the program ends if anything else comes."""
    out = programs.on_load_core([program, f"127.0.0.1:{port}", size, connections, seconds], seconds, stdin=requests)
    done = int(told(out)["done"])
    return Answers(done, done)


def probe(port, protocol, status, body, programs):
    """Asks once, and says what is wrong with the answer: its status, the size of its body, or that there is none."""
    if protocol == "h2c":
        out = programs.on_load_core(["h2load", "-n1", "-c1", f"-H:authority: {HOST}", "-Hx-api-key: key-1",
                                     f"http://127.0.0.1:{port}{PATH}"], 10)
        ok, size = re.search(r"status codes: (\d+) 2xx", out).group(1), int(re.search(r"\((\d+)\) data", out).group(1))
        got, seen = (200 if ok == "1" else "not 2xx"), size
    else:
        tls = ssl._create_unverified_context()
        client = (http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls) if protocol == "tls"
                  else http.client.HTTPConnection("127.0.0.1", port, timeout=10))
        try:
            client.request("GET", PATH, headers={"Host": HOST, **HEADERS, "X-Api-Key": "key-1"})
            answer = client.getresponse()
            got, seen = answer.status, len(answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"does not answer: {error}") from None
        finally:
            client.close()
    if got != status or (status == 200 and seen != body):
        raise Failed(f"answers {got} with {seen} bytes, not {status}" + (f" with {body}" if status == 200 else ""))

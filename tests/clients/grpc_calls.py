#!/usr/bin/env python3
"""A gRPC server and client (grpcio) with a gateway between them: README.md says how to run it."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc

RULES = """
listen: [127.0.0.1:{edge}]
limits:
  few: {{key: ip, rate: 2/h}}
upstreams:
  api: {{servers: ["http://127.0.0.1:{server}"], protocol: http2}}
routes:
  - {{name: few, match: {{path: /test.Few/*}}, upstream: api, limits: [few]}}
  - {{name: api, upstream: api}}
"""

cancelled = threading.Event()


class Service(grpc.GenericRpcHandler):
    """Methods on plain bytes, so that no code has to be generated."""

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Fails": grpc.unary_unary_rpc_method_handler(self.fails),
            "Hangs": grpc.unary_unary_rpc_method_handler(self.hangs),
            "Down": grpc.unary_stream_rpc_method_handler(self.down),
            "Up": grpc.stream_unary_rpc_method_handler(self.up),
            "Both": grpc.stream_stream_rpc_method_handler(self.both),
        }.get(name)

    def unary(self, request, context):
        context.set_trailing_metadata((("x-sum", "7"),))
        return request

    def fails(self, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "not here")

    def hangs(self, request, context):
        context.add_callback(cancelled.set)
        cancelled.wait(20)
        return request

    def down(self, request, context):
        for turn in range(1000):
            yield b"%d" % turn

    def up(self, requests, context):
        return b"+".join(requests)

    def both(self, requests, context):
        for request in requests:
            yield request


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port}")


failed = []


def look(what, found, expected):
    good = found == expected
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": {found!r}, expected {expected!r}"))
    if not good:
        failed.append(what)


def code_of(call):
    try:
        call()
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


def calls(channel):
    unary = channel.unary_unary("/test.Api/Unary")
    answer, call = unary.with_call(b"hello", timeout=5)
    look("a unary call", answer, b"hello")
    look("its trailers", dict(call.trailing_metadata()).get("x-sum"), "7")
    large = os.urandom(3 << 20)
    look("a large message", unary(large, timeout=20) == large, True)

    try:
        channel.unary_unary("/test.Api/Fails")(b"", timeout=5)
    except grpc.RpcError as error:
        look("an error", (error.code(), error.details()), (grpc.StatusCode.NOT_FOUND, "not here"))

    down = list(channel.unary_stream("/test.Api/Down")(b"", timeout=10))
    look("a stream from the server", (len(down), down[-1]), (1000, b"999"))
    up = channel.stream_unary("/test.Api/Up")(iter([b"a", b"b", b"c"]), timeout=5)
    look("a stream to the server", up, b"a+b+c")

    heard = []
    turns = threading.Semaphore(1)

    def say():
        for turn in range(100):
            turns.acquire()  # what was said before has come back
            yield b"%d" % turn

    for message in channel.stream_stream("/test.Api/Both")(say(), timeout=10):
        heard.append(message)
        turns.release()
    look("streams both ways, in turn", heard, [b"%d" % turn for turn in range(100)])

    with futures.ThreadPoolExecutor(32) as pool:
        many = list(pool.map(lambda turn: unary(b"%d" % turn, timeout=20), range(500)))
    look("500 calls at once", many, [b"%d" % turn for turn in range(500)])

    hangs = channel.unary_unary("/test.Api/Hangs")
    look("a deadline", code_of(lambda: hangs(b"", timeout=0.5)), grpc.StatusCode.DEADLINE_EXCEEDED)
    look("the server is told of it", cancelled.wait(2), True)
    cancelled.clear()
    call = hangs.future(b"", timeout=20)
    time.sleep(0.3)
    call.cancel()
    look("a cancellation reaches the server", cancelled.wait(1), True)

    few = channel.unary_unary("/test.Few/Unary")
    codes = [code_of(lambda: few(b"", timeout=5)) for _ in range(4)]
    ok, refused = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED
    look("calls above a limit", codes, [ok, ok, refused, refused])
    look("a stream above a limit", code_of(lambda: list(channel.stream_stream("/test.Few/Both")(iter([b"a"]), timeout=5))), refused)
    look("the others go on", unary(b"still", timeout=5), b"still")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} PATH/TO/sluicegate")
    server = grpc.server(futures.ThreadPoolExecutor(64), handlers=[Service()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    edge = free_port()
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "gateway.yaml")
        with open(rules, "w", encoding="utf-8") as file:
            file.write(RULES.format(edge=edge, server=port))
        gateway = subprocess.Popen([sys.argv[1], "--config", rules])
        try:
            wait_for(edge)
            limits = [("grpc.max_receive_message_length", 16 << 20), ("grpc.enable_retries", 0)]
            with grpc.insecure_channel(f"127.0.0.1:{edge}", options=limits) as channel:
                calls(channel)
        finally:
            gateway.terminate()
            gateway.wait(40)
    cancelled.set()
    server.stop(None)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()

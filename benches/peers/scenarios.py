"""What is asked of all peers."""
import dataclasses


@dataclasses.dataclass
class Scenario:
    letter: str
    title: str
    connections: int = 64
    streams: int = 0  # requests at once on a connection of HTTP/2; 0: HTTP/1.1
    body: int = 100  # bytes of an answer
    status: int = 200  # of all answers
    close: bool = False  # a connection for each request
    tls: bool = False
    upload: int = 0  # bytes of the body of a request; 0: GET
    chunked: bool = False  # whether its length is not told beforehand
    handshake: str = ""  # of TLS, for each request: "full" or "resumed"
    message: int = 0  # bytes of a WebSocket message that is sent back, which is a request then


ALL = [
    Scenario("A", "forwarded"),
    Scenario("B", "refused", status=429),
    Scenario("C", "10 KiB answers", body=10240),
    Scenario("D", "a connection per request", close=True),
    Scenario("E", "HTTP/2 without TLS", connections=8, streams=8),
    Scenario("F", "HTTP/1.1 over TLS", tls=True),
    Scenario("G", "HTTP/2 over TLS", connections=8, streams=8, tls=True),
    Scenario("H", "1,000 connections", connections=1000),
    Scenario("I", "1 MiB answers", connections=16, body=1 << 20),
    Scenario("J", "POST 1 KiB", upload=1 << 10),
    Scenario("K", "POST 1 KiB, chunked", upload=1 << 10, chunked=True),
    Scenario("L", "POST 64 KiB", upload=64 << 10),
    Scenario("M", "POST 64 KiB, chunked", upload=64 << 10, chunked=True),
    Scenario("N", "POST 1 MiB", connections=16, upload=1 << 20),
    Scenario("O", "a full TLS handshake per request", connections=16, tls=True, handshake="full"),
    Scenario("P", "5,000 connections", connections=5000),
    Scenario("Q", "POST 64 KiB, HTTP/2 without TLS", connections=8, streams=8, upload=64 << 10),
    Scenario("R", "POST 1 MiB, chunked", connections=16, upload=1 << 20, chunked=True),
    Scenario("S", "a resumed TLS handshake per request", connections=16, tls=True, handshake="resumed"),
    Scenario("T", "WebSocket, 100 bytes sent back", message=100),
    Scenario("U", "WebSocket, 64 KiB sent back", connections=16, message=64 << 10),
]

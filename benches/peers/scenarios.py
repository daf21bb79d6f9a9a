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


ALL = [
    Scenario("A", "forwarded"),
    Scenario("B", "refused", status=429),
    Scenario("C", "10 KiB answers", body=10240),
    Scenario("D", "a connection per request", close=True),
    Scenario("E", "HTTP/2 without TLS", connections=8, streams=8),
    Scenario("F", "HTTP/1.1 over TLS", tls=True),
    Scenario("G", "HTTP/2 over TLS", connections=8, streams=8, tls=True),
    Scenario("H", "1,000 connections", connections=1000),
]

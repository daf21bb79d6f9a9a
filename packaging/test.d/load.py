"""load.py ready HOST:PORT: exits with 0 if /readyz of the admin API answers 200.

load.py load HOST:PORT STOP: sends requests on kept and on new connections until the file STOP exists, and makes the file
STOP.running after the first answer. Fails if a request has no answer with 200; none is sent again."""

import http.client
import os
import sys
import threading


class Load:
    def __init__(self, address, stop):
        self.address, self.stop = address, stop
        self.lock = threading.Lock()
        self.answered, self.connections, self.lost = 0, 0, []

    def count(self, problem):
        with self.lock:
            if problem:
                self.lost.append(problem)
                return
            self.answered += 1
            if self.answered == 1:
                open(self.stop + ".running", "w").close()

    def client(self, keeps):
        """One client. It opens a connection when it has none: the last answer said so, or it does not keep any."""
        connection = None
        while not os.path.exists(self.stop):
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(self.address, timeout=20)
                    self.connections += 1
                connection.request("GET", "/v1/hello")
                response = connection.getresponse()
                body = response.read()
                good = response.status == 200 and body == b"hello\n"
                self.count(None if good else f"status {response.status}")
                if response.will_close or not keeps:
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as error:
                self.count(repr(error))
                connection = None

    def run(self):
        threads = [threading.Thread(target=self.client, args=(number % 2 == 0,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{self.answered} requests answered on {self.connections} connections, {len(self.lost)} lost")
        print("\n".join(self.lost[:10]), end="")
        return 1 if self.lost else 0


def ready(address):
    connection = http.client.HTTPConnection(address, timeout=2)
    connection.request("GET", "/readyz")
    return 0 if connection.getresponse().status == 200 else 1


if sys.argv[1] == "ready":
    sys.exit(ready(sys.argv[2]))
sys.exit(Load(sys.argv[2], sys.argv[3]).run())

"""The web server that the playbooks here use, at `web`; tests/it/playbooks/web.rs is the same server for remoor."""

import base64
import hashlib
import http.server
import json
import threading

# Sent as the time of each file: earlier than any run of a test.
MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"
FILE = b"content of a file\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", kind="text/plain", **headers):
        self.send_response(status)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(body)

    def any(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path == "/file.txt":
            if self.headers.get("If-Modified-Since"):
                return self.say(304)
            return self.say(200, FILE, Last_Modified=MODIFIED)
        if path == "/always.txt":
            return self.say(200, FILE)
        if path == "/named":
            return self.say(200, FILE, Content_Disposition='attachment; filename="given.txt"')
        if path == "/sums":
            return self.say(200, f"00  other.txt\n{hashlib.sha256(FILE).hexdigest()}  file.txt\n".encode())
        if path == "/json":
            return self.say(200, b'{"a": [1, "x"]}', "application/json", Set_Cookie="c=d; Path=/")
        if path == "/echo":
            told = {"method": self.command, "type": self.headers.get("Content-Type"), "body": sent.decode()}
            return self.say(200, json.dumps(told).encode(), "application/json")
        if path == "/login":
            if self.headers.get("Authorization") == "Basic " + base64.b64encode(b"me:secret").decode():
                return self.say(200, b"welcome")
            return self.say(401, b"who?", WWW_Authenticate='Basic realm="x"')
        if path == "/moved":
            return self.say(302, Location="/always.txt")
        if path == "/created":
            return self.say(201, b"made")
        return self.say(404, b"nothing here")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = any


def start():
    """The address of a server that runs as long as this program."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"

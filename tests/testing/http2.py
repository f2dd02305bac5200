# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/2 client that does what no gRPC library would: one call a
connection, any bytes, as many as the server takes."""

import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = (
    0, 1, 3, 4, 6, 7, 8)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_FRAME = 16384
STREAM = 1


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] +
            struct.pack(">BBI", kind, flags, stream) + payload)


def _string(text):
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, size = len(data) - 127, b"\x7f"
    while rest >= 128:
        size += bytes([rest % 128 + 128])
        rest //= 128
    return size + bytes([rest]) + data


def header_block(headers):
    """Literal headers without a table."""
    return b"".join(b"\0" + _string(name) + _string(value)
                    for name, value in headers)


def message(payload):
    """A gRPC message."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Http2Call:
    """One call. Refused connections raise OSError, at once or later."""

    def __init__(self, address, path, tls=None, headers=(), timeout_s=20):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket)
        self._buffer = b""
        self._window = {0: 65535, STREAM: 65535}
        # What the server said: its frames' payloads, and how the call ended.
        self.received = b""
        self.ended = False
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path),
                  (":authority", "test"), ("te", "trailers"),
                  ("content-type", "application/grpc"), *headers]
        self._socket.sendall(
            PREFACE + frame(SETTINGS, 0, 0) +
            frame(HEADERS, END_HEADERS, STREAM, header_block(fields)))

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data, timeout_s=60):
        """Sends data as the server's windows allow; returns how many bytes
        went before the call ended."""
        sent = 0
        deadline = time.monotonic() + timeout_s
        while sent < len(data) and not self.ended:
            if time.monotonic() > deadline:
                break
            room = min(self._window[0], self._window[STREAM], MAX_FRAME,
                       len(data) - sent)
            if room <= 0:
                self.read(0.2)
                continue
            self._socket.sendall(
                frame(DATA, 0, STREAM, data[sent:sent + room]))
            self._window[0] -= room
            self._window[STREAM] -= room
            sent += room
            self.read(0)
        return sent

    def read(self, timeout_s):
        """Handles what has come, or comes within the time."""
        while not self.ended:
            pending = getattr(self._socket, "pending", lambda: 0)()
            if not pending:
                # select() ends at descriptor 1,024.
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                if not poll.poll(timeout_s * 1000):
                    return
            data = self._socket.recv(65536)
            if not data:
                self.ended = True
                return
            self._buffer += data
            self._take_frames()
            timeout_s = 0

    def wait_end(self, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not self.ended and time.monotonic() < deadline:
            self.read(0.2)
        return self.ended

    def _take_frames(self):
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._buffer[3:9])
            payload = self._buffer[9:9 + size]
            self._buffer = self._buffer[9 + size:]
            self._on_frame(kind, flags, stream, payload)

    def _on_frame(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for i in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[i:i + 6])
                if name == 4:  # The initial window of streams.
                    self._window[STREAM] += value - 65535
            self._socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._window[stream] += int.from_bytes(payload, "big")
        elif kind == GOAWAY or kind == RST_STREAM:
            self.received += payload
            self.ended = True
        elif kind in (DATA, HEADERS):
            self.received += payload
            if kind == DATA and payload:
                update = struct.pack(">I", len(payload))
                self._socket.sendall(
                    frame(WINDOW_UPDATE, 0, 0, update) +
                    frame(WINDOW_UPDATE, 0, STREAM, update))
            if flags & END_STREAM:
                self.ended = True

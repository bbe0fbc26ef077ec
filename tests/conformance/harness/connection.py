"""A client connection of a scenario: its sent and received frames go to the session's log."""

import contextlib
import queue
import select
import socket
import struct
import threading

from harness.wire import Frame, checksummed, command, framed, headers_and_payload, metadata_of, plain, short_bytes

MOMENT_SECONDS = 0.005  # the shortest and the longest wait in seconds between two looks at the clock
MOST_SECONDS = 1


class Connection:
    """Sends commands, keeps received frames in order; a thread of its own reads and answers PING at once."""

    def __init__(self, session, name, sock):
        self.session, self.name, self.sock, self.answer_ping = session, name, sock, True
        self.frames, self.writing, self._reading = queue.Queue(), threading.Lock(), False
        threading.Thread(target=self._receive, daemon=True).start()

    # sending
    def send(self, type_name, quietly=False, **fields):
        base, target = command(type_name, fields)
        if not quietly:
            self.session.saw_sent(fields)
            self.session.log(self.name, ">", type_name, plain(target))
        self._write(framed(base))

    def publish(
        self, producer_id, sequence_id, payload=b"x", command=None, bad_crc=False, crc=True, entry=None, **metadata
    ):
        """A SEND frame. `command` adds fields of CommandSend; `entry` replaces metadata and payload by raw bytes."""
        ids = {"producer_id": producer_id, "sequence_id": sequence_id}
        base, send = _send_command(ids | (command or {}))
        m = metadata_of(sequence_id, metadata)
        tail = entry if entry is not None else headers_and_payload(m, payload)
        if crc:
            tail = checksummed(tail, bad_crc)
        self.session.saw_sent(metadata)
        sent = plain(send) | {"metadata": plain(m), "payload": short_bytes(payload)}
        self.session.log(self.name, ">", "SEND", sent)
        self._write(framed(base, tail))

    def raw(self, data, note, tolerant=False):
        """Send the bytes as they are; `tolerant` when the peer may close before it has read all of them."""
        self.session.log(self.name, ">", "RAW", note)
        self._write(data, tolerant)

    def _write(self, data, tolerant=False):
        try:
            with self.writing:
                self.sock.sendall(data)
        except OSError:
            if not tolerant:
                self.session.log(self.name, "!", "WRITE", "refused")

    # receiving
    def _receive(self):
        buffer = bytearray()
        while True:
            self._reading = False
            try:
                _poll(self.sock).poll()
                self._reading = True  # before the bytes leave the socket: see _is_caught_up
                data = self.sock.recv(1 << 20)
            except (OSError, ValueError):  # reset, or closed by the scenario
                data = b""
            if not data:
                self.frames.put(False)
                return
            buffer += data
            while len(buffer) >= 4 and len(buffer) >= 4 + (n := struct.unpack_from(">I", buffer)[0]):
                self._keep(Frame(bytes(buffer[4 : 4 + n])))
                del buffer[: 4 + n]

    def _keep(self, frame):
        if frame.type == "PING":
            if self.answer_ping:
                self.send("PONG", quietly=True)
        elif frame.type != "PONG" or self.session.keep_pong:
            self.frames.put(frame)

    def _read(self, timeout):
        """The next frame, None when no frame came, False when the peer closed.

        The timeout is time of the session's clock. The read also waits for the time that the clock lost since the last
        silence (while a scenario slept), before it reports silence.
        """
        session = self.session
        timeout = session.within_deadline(timeout)
        end = session.clock.now() + timeout + session.owed()
        while True:
            try:
                frame = self.frames.get(timeout=min(max(end - session.clock.now(), MOMENT_SECONDS), MOST_SECONDS))
            except queue.Empty:
                if session.clock.now() < end or not self._is_caught_up() or not self.frames.empty():
                    continue
                session.repaid()
                session.check_deadline()
                return None
            if frame is False:
                self.frames.put(False)
            return frame

    def _is_caught_up(self):
        """Whether all that has arrived is among the frames.

        The thread that reads may have had no processor. It is marked as reading before it takes bytes from the socket,
        so the check of the socket comes first: when the socket is empty and no read is under way, all its bytes are in
        the queue.
        """
        try:
            waiting = _poll(self.sock).poll(0)
        except (OSError, ValueError):  # closed by the scenario
            return True
        return not waiting and not self._reading

    def recv(self, timeout=10):
        frame = self._read(timeout)
        self.session.log_frame(self.name, frame)
        return frame or None

    def recv_quietly(self, timeout=10):
        """Reads without logging; for set-up whose answers another scenario already checks."""
        return self._read(timeout) or None

    def recv_sorted(self, n, timeout=10):
        """n frames in any order, logged in a canonical order."""
        frames = [self._read(timeout) for _ in range(n)]
        for type_name, what in sorted((self.session.frame_text(f) for f in frames), key=str):
            self.session.log(self.name, "<", type_name, what)
        return [f for f in frames if f]

    def none(self, seconds=0.5):
        """Expect no frame for so long; a frame that comes is logged."""
        return self.recv(seconds)

    def until_closed(self, timeout=10):
        while self.recv(timeout):
            pass

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # common steps, logged like any other
    def producer(self, topic, producer_id=1, quietly=False, **fields):
        return self.ask("PRODUCER", quietly, topic=topic, producer_id=producer_id, **fields)

    def subscribe(self, topic, subscription="sub", consumer_id=1, permits=0, quietly=False, **fields):
        ids = {"topic": topic, "subscription": subscription, "consumer_id": consumer_id}
        frame = self.ask("SUBSCRIBE", quietly, **ids, **({"subType": "Exclusive"} | fields))
        if permits:
            self.send("FLOW", quietly=quietly, consumer_id=consumer_id, messagePermits=permits)
        return frame

    def ask(self, type_name, quietly=False, **fields):
        """Sends a command with a request id and reads frames up to its answer (others are logged as they come)."""
        if "request_id" not in fields:
            fields["request_id"] = self.session.next_request()
        self.send(type_name, quietly=quietly, **fields)
        while True:
            frame = self._read(10)
            if not quietly or not frame:
                self.session.log_frame(self.name, frame)
            if not frame or getattr(frame.command, "request_id", None) == fields["request_id"]:
                return frame or None

    def publish_all(self, producer_id, payloads, first=0, **metadata):
        """Publishes and reads the receipts, unlogged; returns their message ids."""
        keep, self.session.lines = self.session.lines, []
        try:
            ids = []
            for i, payload in enumerate(payloads):
                self.publish(producer_id, first + i, payload, **metadata)
                frame = self._read(10)
                ids.append(frame.message_id if frame and frame.type == "SEND_RECEIPT" else None)
            return ids
        finally:
            self.session.lines = keep


def _send_command(fields):
    return command("SEND", fields)


def _poll(sock):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll

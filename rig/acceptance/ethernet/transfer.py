"""Transfers random bytes over TCP and compares them.

usage: transfer.py receive ADDRESS
       transfer.py send ADDRESS MEBIBYTES

The receiver accepts one connection and returns the digest of the data that it received.
"""

import hashlib
import random
import socket
import sys
import time

PORT = 7777


def receive(address):
    with socket.create_server((address, PORT), family=family(address)) as listener:
        listener.settimeout(100)
        connection, _ = listener.accept()
    digest = hashlib.sha256()
    with connection:
        while data := connection.recv(1 << 20):
            digest.update(data)
        connection.sendall(digest.digest())


def send(address, mebibytes):
    end = time.monotonic() + 60
    while True:
        try:
            connection = socket.create_connection((address, PORT), timeout=60)
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    digest = hashlib.sha256()
    source = random.Random(mebibytes)
    with connection:
        for _ in range(mebibytes):
            data = source.randbytes(1 << 20)
            digest.update(data)
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(64) != digest.digest():
            sys.exit('the received data differs from the data sent')


def family(address):
    return socket.AF_INET6 if ':' in address else socket.AF_INET


if sys.argv[1] == 'receive':
    receive(sys.argv[2])
else:
    send(sys.argv[2], int(sys.argv[3]))

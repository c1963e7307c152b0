#!/usr/bin/env python3
# feed-clients.py COUNT  Connects to port 7019 so often, and discards what it receives until the server ends.
import select, socket, sys

poll, sockets = select.epoll(), {}
for _ in range(int(sys.argv[1])):
    client = socket.create_connection(("127.0.0.1", 7019))
    client.setblocking(False)
    sockets[client.fileno()] = client
    poll.register(client, select.EPOLLIN)
while sockets:
    for number, _ in poll.poll():
        try:
            if sockets[number].recv(65536): continue
        except BlockingIOError: continue
        except OSError: pass
        poll.unregister(number)
        sockets.pop(number).close()

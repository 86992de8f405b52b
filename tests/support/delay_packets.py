"""Passes packets between two links, each a while later: delay_packets.py LINK LINK MILLISECONDS."""

import collections
import select
import socket
import sys
import time

PACKET_OUTGOING = 4
SOL_PACKET, PACKET_VNET_HDR = 263, 15
ETH_P_ALL = 3

links = []
for name in sys.argv[1:3]:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    # With this header come packets that still lack a checksum or are not cut into segments yet.
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    link.bind((name, ETH_P_ALL))
    link.setblocking(False)
    links.append(link)
delay_s = float(sys.argv[3]) / 1000
waiting = collections.deque()
while True:
    wait_s = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    for link in select.select(links, [], [], wait_s)[0]:
        packet, address = link.recvfrom(1 << 17)
        if address[2] != PACKET_OUTGOING:
            waiting.append((time.monotonic() + delay_s, links[link is links[0]], packet))
    while waiting and waiting[0][0] <= time.monotonic():
        try:
            waiting[0][1].send(waiting[0][2])
        except OSError:
            pass  # The other link is down: the packet is lost.
        waiting.popleft()

#!/usr/bin/env python3
"""Prints the lines of standard input, which a library in Swift reads in the event loop of asyncio: asyncio-host.py LIBRARY

LIBRARY is .build/debug/libHostedLines.so, which `swift build --product HostedLines` builds.
"""
import asyncio
import ctypes
import sys

Handler = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


async def main(path):
    library = ctypes.CDLL(path)
    library.lines_dispatch.restype = ctypes.c_bool
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    count = 0

    @Handler
    def print_line(line):
        nonlocal count
        count += 1
        print(f"{count}: {line.decode()}", flush=True)

    def dispatch():
        if not library.lines_dispatch():
            loop.remove_reader(descriptor)
            ended.set()

    descriptor = library.lines_begin(0, print_line)
    if descriptor < 0:
        raise OSError(-descriptor, "lines_begin")
    loop.add_reader(descriptor, dispatch)
    await ended.wait()
    library.lines_end()
    print(f"{count} lines")


asyncio.run(main(sys.argv[1]))

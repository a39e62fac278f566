"""The topology of `benchmarks/async_calls.py`, and the service that it calls.

    python benchmarks/async_calls_app.py service MS
    python benchmarks/async_calls_app.py run BOOTSTRAP APPLICATION_ID INPUT OUTPUT CONCURRENCY PORT READY_FILE

A service prints its port. An application writes the time (ms since the epoch) to READY_FILE once it runs; both run
until SIGTERM. A request is a line, and so is its answer: what is measured is the operator, not a client of HTTP.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from suiro.streams import KafkaStreams, StreamsBuilder, serdes

_idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []


async def serve(ms: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await asyncio.sleep(ms / 1000)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def topology(source: str, output: str, concurrency: int, port: int) -> Any:
    async def asked(value: str) -> str:
        connection = _idle.pop() if _idle else await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        writer.write(value.encode() + b"\n")
        answer = await reader.readline()
        _idle.append(connection)
        return answer[:-1].decode()

    builder = StreamsBuilder()
    stream = builder.stream(source, key=serdes.string, value=serdes.string)
    stream.map_values_async(asked, concurrency=concurrency, value=serdes.string).to(output)
    return builder.build()


def main() -> int:
    match sys.argv[1:]:
        case ["service", ms]:
            asyncio.run(serve(int(ms)))
        case ["run", bootstrap, application, source, output, concurrency, port, ready]:
            built = topology(source, output, int(concurrency), int(port))
            streams = KafkaStreams(built, application_id=application, bootstrap_servers=bootstrap)
            streams.start()
            Path(ready).write_text(str(int(time.time() * 1000)))
            streams.await_termination()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

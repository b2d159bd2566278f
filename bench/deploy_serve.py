#!/usr/bin/env python3
"""Load generator for servers of policies: troop serve, and bench/peers/serve_onnx.py.

    bench/deploy_serve.py URL [--peer URL] [--p99-ms 50] [--seconds 5] [--form binary]

Finds the highest rate of requests at which the 99th percentile of the latency stays within a
limit. Clients on kept connections send one request after the other; their number doubles until the
limit is exceeded. With --peer the answers of both servers are compared first, and the two are
measured in turn. Prints one JSON line per number of clients, and one with the best rate of each
server. Only the standard library is needed. The generator itself uses one core per process
(--processes): if its cores are busy, it measures itself.
"""
import argparse
import asyncio
import json
import multiprocessing
import random
import struct
import sys
import time
import urllib.parse
import urllib.request

FORMATS = {"f32": "f", "i32": "i", "u8": "B"}
TIMEOUT_S = 30


def describe(url):
    """The description of the policy: GET /v1/policy."""
    with urllib.request.urlopen(url + "/v1/policy", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def draw(policy, rows, generator):
    """Observations [rows, (stack,) ...shape] as a flat list, and that shape."""
    observation = policy["observation"]
    shape = list(observation["shape"])
    if observation["stack"] > 1:
        shape.insert(0, observation["stack"])
    count = rows
    for size in shape:
        count *= size
    if observation["dtype"] == "u8":
        return [generator.randrange(256) for _ in range(count)], [rows] + shape
    if observation["dtype"] == "i32":
        return [generator.randrange(2) for _ in range(count)], [rows] + shape
    # Multiples of 1/64: both forms carry the same floats.
    return [generator.randrange(-128, 129) / 64 for _ in range(count)], [rows] + shape


def nest(values, shape):
    """A flat list as nested lists."""
    if len(shape) == 1:
        return values
    step = len(values) // shape[0]
    return [nest(values[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]


def request_bytes(host, policy, form, rows, generator):
    """One request of HTTP/1.1 with its body."""
    values, shape = draw(policy, rows, generator)
    if form == "binary":
        kind = "application/octet-stream"
        code = FORMATS[policy["observation"]["dtype"]]
        body = struct.pack(f"<{len(values)}{code}", *values)
    else:
        kind = "application/json"
        body = json.dumps({"observations": nest(values, shape)}).encode()
    head = (f"POST /v1/act HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


async def exchange(reader, writer, request):
    """Sends a request; returns status and body."""
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
    lines = head.decode("latin-1").split("\r\n")
    length = 0
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    body = await asyncio.wait_for(reader.readexactly(length), TIMEOUT_S)
    return int(lines[0].split()[1]), body


async def client(address, requests, until, latencies, failures):
    """Sends requests one after the other on one connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for number in range(1 << 60):
            begin = time.perf_counter()
            if begin >= until:
                return
            status, _ = await exchange(reader, writer, requests[number % len(requests)])
            if status == 200:
                latencies.append(time.perf_counter() - begin)
            else:
                failures.append(status)
    finally:
        writer.close()


def run_clients(task):
    """One process of the generator: latencies and failed statuses."""
    url, form, rows, clients, seconds, seed = task
    parts = urllib.parse.urlsplit(url)
    address = (parts.hostname, parts.port)
    generator = random.Random(seed)
    policy = describe(url)
    requests = [request_bytes(parts.netloc, policy, form, rows, generator) for _ in range(64)]
    latencies, failures = [], []

    async def main():
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(address, requests, until, latencies, failures)
                               for _ in range(clients)))
    asyncio.run(main())
    return latencies, failures


def measure(url, options, clients):
    """One row: rate and percentiles with a number of clients."""
    processes = min(options.processes, clients)
    shares = [clients // processes + (i < clients % processes) for i in range(processes)]
    tasks = [(url, options.form, options.rows, share, options.seconds, seed)
             for seed, share in enumerate(shares)]
    with multiprocessing.Pool(processes) as pool:
        results = pool.map(run_clients, tasks)
    latencies = sorted(x for result in results for x in result[0])
    failed = sum(len(result[1]) for result in results)
    if not latencies:
        raise SystemExit(f"{url}: no request was answered ({failed} failed)")

    def percentile(q):
        return round(1000 * latencies[min(len(latencies) - 1, int(q * len(latencies)))], 3)
    return {"url": url, "form": options.form, "rows": options.rows, "clients": clients,
            "requests_per_s": round(len(latencies) / options.seconds, 1), "failed": failed,
            "p50_ms": percentile(0.5), "p99_ms": percentile(0.99)}


def answers(url, form, policy, count):
    """The actions of `count` single observations, the same ones for every server."""
    parts = urllib.parse.urlsplit(url)
    generator = random.Random(99)

    async def main():
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        found = []
        for _ in range(count):
            request = request_bytes(parts.netloc, policy, form, 1, generator)
            status, body = await exchange(reader, writer, request)
            if status != 200:
                raise SystemExit(f"{url}: status {status}: {body[:200]!r}")
            if form == "json":
                found.append(json.loads(body)["actions"][0])
            elif policy["action"]["kind"] == "discrete":
                found.append(struct.unpack("<i", body[:4])[0])
            else:
                found.append(list(struct.unpack(f"<{len(body) // 4}f", body)))
        writer.close()
        return found
    return asyncio.run(main())


def equal(mine, theirs):
    """Equal actions; continuous ones within the tolerance of exported policies."""
    if not isinstance(mine, list):
        return mine == theirs
    return all(abs(a - b) <= 1e-4 * max(1, abs(a)) for a, b in zip(mine, theirs))


def verify(options, urls):
    """Compares all servers and both forms."""
    policy = describe(urls[0])
    want = answers(urls[0], "json", policy, 100)
    for url in urls:
        for form in ("json", "binary"):
            found = answers(url, form, policy, 100)
            same = sum(map(equal, want, found))
            # Two values that are nearly equal may change places with the order of a sum.
            if len(found) != len(want) or same < 99:
                raise SystemExit(f"{url} ({form}) agrees on {same} of {len(want)} actions")
    print(f"verified: {len(urls)} server(s) give equal actions in both forms", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", help="of troop serve: http://127.0.0.1:8000")
    parser.add_argument("--peer", help="URL of another server of the same policy")
    parser.add_argument("--p99-ms", type=float, default=50, help="limit of the latency")
    parser.add_argument("--seconds", type=float, default=5, help="per number of clients")
    parser.add_argument("--clients-max", type=int, default=256)
    parser.add_argument("--rows", type=int, default=1, help="observations per request")
    parser.add_argument("--form", choices=("json", "binary"), default="json")
    parser.add_argument("--processes", type=int, default=1, help="of the generator")
    options = parser.parse_args()
    urls = [url.rstrip("/") for url in (options.url, options.peer) if url]
    verify(options, urls)
    best = {url: None for url in urls}
    within = {url: True for url in urls}
    clients = 1
    while clients <= options.clients_max and any(within.values()):
        for url in urls:
            if not within[url]:
                continue
            row = measure(url, options, clients)
            print(json.dumps(row), flush=True)
            # Refused requests are no throughput, and more clients would not help.
            within[url] = row["p99_ms"] <= options.p99_ms and row["failed"] == 0
            if within[url] and (best[url] is None or
                                row["requests_per_s"] > best[url]["requests_per_s"]):
                best[url] = row
        clients *= 2
    for url in urls:
        print(json.dumps({"url": url, "p99_limit_ms": options.p99_ms, "best": best[url]}))


if __name__ == "__main__":
    main()

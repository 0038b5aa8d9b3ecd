"""Tests of what needs no server. test/conformance has the others."""

import json
import random
import time
import unittest
from email.utils import formatdate

import rota_dispatch as rota


def take(expires=30.0, **fields):
    return rota.Take(rota.clock(), {"token": "secret", "kind": "Widget.example.com", "namespace": "a", "name": "b",
                                    "expiresInSeconds": expires, **fields})


class TakeTest(unittest.TestCase):
    def test_counts_from_the_request(self):
        t = rota.Take(rota.clock() - 4, {"token": "t", "kind": "K", "name": "n", "expiresInSeconds": 30})
        self.assertAlmostEqual(t.remaining(), 26, delta=1)
        t.check()

    def test_ends_when_it_expires(self):
        t = take(expires=-1)
        self.assertRaises(rota.Ended, t.check)
        self.assertTrue(t.ended.is_set())

    def test_ignores_what_it_does_not_know(self):
        t = take(someday={"a": [1]}, gone=True, attempt=3)
        self.assertEqual((t.kind, t.namespace, t.name, t.gone, t.attempt), ("Widget.example.com", "a", "b", True, 3))

    def test_does_not_print_its_token(self):
        self.assertEqual(f"{take()} {take()!r}", "Widget.example.com a/b Widget.example.com a/b")


class ProblemTest(unittest.TestCase):
    def test_is_what_the_answer_says(self):
        body = b'{"type":"https://rota.dev/problems/forbidden","status":200,"detail":"who are you"}'
        p = rota._problem(403, {}, body)
        self.assertEqual((p.status, p.kind, p.detail, p.temporary), (403, "forbidden", "who are you", False))
        self.assertIsInstance(rota._problem(410, {}, b"<html>"), rota.Ended)
        self.assertTrue(rota._problem(502, {}, b"<html>").temporary)

    def test_reads_any_answer(self):
        seed = random.randrange(1 << 32)
        r = random.Random(seed)
        for _ in range(2000):
            body = bytes(r.choices(b'{}[]":,0e"type\xff\x00 nulltrue', k=r.randrange(40)))
            after = "".join(r.choices("0123456789.eE+-naif :,GMT", k=r.randrange(12)))
            with self.subTest(seed=seed, body=body, after=after):
                p = rota._problem(503, {"Retry-After": after}, body)
                self.assertTrue(0 <= p.retry_after <= rota.MAX_RETRY_AFTER and p.temporary)

    def test_retry_after(self):
        soon = formatdate(time.time() + 60, usegmt=True)
        for header, want in ((None, 0), ("3", 3), ("-3", 0), ("soon", 0), ("nan", 0), ("inf", rota.MAX_RETRY_AFTER),
                             (soon, 60), (formatdate(0, usegmt=True), 0)):
            self.assertAlmostEqual(rota._retry_after(header), want, delta=2, msg=header)


class DelayTest(unittest.TestCase):
    def test_doubles_up_to_a_limit(self):
        for failures in range(1, 50):
            most = min(rota.FIRST_DELAY * 2 ** (failures - 1), rota.MAX_DELAY)
            for _ in range(20):
                d = rota._delay(failures, OSError())
                self.assertTrue(most / 2 <= d <= most, (failures, d))

    def test_never_before_retry_after(self):
        for _ in range(100):
            self.assertTrue(4 <= rota._delay(1, rota.Problem(503, retry_after=4)) <= 5)


class BatchesTest(unittest.TestCase):
    def test_fit_into_a_request(self):
        for n, reason, least in ((0, "", 0), (100, "", 1), (201, "", 3), (100, "\u2028" * 512, 5)):
            bodies = [{"token": str(i), "reason": reason} for i in range(n)]
            batches = list(rota._batches(bodies))
            self.assertEqual(sum(batches, []), bodies)
            self.assertTrue(least <= len(batches) <= least + 1, len(batches))
            for batch in batches:
                self.assertTrue(len(batch) <= rota.MAX_TAKES and len(json.dumps({"takes": batch})) <= rota.MAX_BODY)


class HandleTest(unittest.TestCase):
    def test_begins_nothing_too_late(self):
        for stops in (False, True):
            begun = []
            worker = rota.Worker("http://127.0.0.1:1", [], begun.append)
            if stops:
                worker._stopping.set()
            with self.assertLogs("rota_dispatch", "WARNING") as logs:
                worker._handle(take(expires=-1))  # it says nothing to a dispatcher, or this would last
            self.assertEqual((begun, worker._running), ([], {}))
            self.assertIn("expired before its handler began", logs.output[0])


class ArgumentsTest(unittest.TestCase):
    def test_refused(self):
        for url in ("dispatchers:8443", "https://", "ftp://d", "https://d?a=b", []):
            self.assertRaises(ValueError, rota.Client, url)
        for concurrency in (0, -1, 1001):
            self.assertRaises(ValueError, rota.Worker, "http://d", [], print, concurrency=concurrency)


if __name__ == "__main__":
    unittest.main()

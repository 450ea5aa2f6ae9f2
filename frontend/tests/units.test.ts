import { expect, test } from "vitest"
import { ago, brief, count, duration, numeric, plural, rate, share, size, times } from "../src/app/units"

// The same cases as tests/test_units.py: both sides must say the same.
test.each([
  [0, "0 ns"],
  [831, "831 ns"],
  [1_000, "1.00 µs"],
  [12_345, "12.3 µs"],
  [999_999, "1.00 ms"],
  [123_456_789, "123 ms"],
  [41_300_000_000, "41.3 s"],
  [104_000_000_000, "104 s"],
  [123_000_000_000, "2 min 03 s"],
  [3_600_000_000_000, "60 min 00 s"],
  [7_320_000_000_000, "2 h 02 min"],
  [200 * 3_600_000_000_000, "8 d 08 h"],
  [-1_500_000, "-1.50 ms"],
  [null, "n/a"],
])("the duration of %s ns is %s", (ns, text) => expect(duration(ns)).toBe(text))

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [1_000, "1.00 kB"],
  [4_096, "4.10 kB"],
  [1_250_000_000, "1.25 GB"],
  [null, "n/a"],
])("the size of %s bytes is %s", (bytes, text) => expect(size(bytes)).toBe(text))

test.each([
  [0, "0"],
  [9_999, "9,999"],
  [999_999, "999,999"],
  [1_250_000, "1.25 M"],
])("%s is counted as %s", (number, text) => expect(count(number)).toBe(text))

test.each([
  [0.0001, "<0.1 %"],
  [0, "0 %"],
  [0.041, "4.1 %"],
  [0.29, "29 %"],
])("the share %s is %s", (part, text) => expect(share(part)).toBe(text))

test.each([
  [0.5, "0.5"],
  [-12.25, "-12.25"],
  [3.4e38, "3.4e38"],
  [1e-9, "1e-9"],
  [0, "0"],
  [1200, "1200"],
  ["NaN", "NaN"],
  ["-Infinity", "-infinity"],
  [null, "n/a"],
] as const)("the number %s is %s", (value, text) => expect(brief(value)).toBe(text))

test("ratios and rates have few digits", () => {
  expect([times(1.54), times(12.4), times(null)]).toEqual(["1.5x", "12x", "n/a"])
  expect([rate(1240.4), rate(38.24), rate(0.5)]).toEqual(["1,240", "38.2", "0.5"])
})

test("one is one, and more are more", () => {
  expect([plural(1, "run"), plural(0, "run"), plural(2, "batch", "batches")]).toEqual(["1 run", "0 runs", "2 batches"])
})

test("NaN comes as text and is a number again", () => expect(numeric("NaN")).toBeNaN())

test("the distance of a moment is in its largest unit", () => {
  const now = Date.parse("2026-01-02T00:00:00Z")
  expect(ago("2026-01-01T23:59:30Z", now)).toBe("just now")
  expect(ago("2026-01-01T23:00:01Z", now)).toBe("59 min ago")
  expect(ago("2025-12-31T00:00:00Z", now)).toBe("2 d ago")
})

import { expect, test } from "vitest"
import type { Slice, StepLane } from "../src/api/types"
import { bars, early, groups, phaseOf, sliceName } from "../src/pages/step/bars"

function slice(name: string, start: number, dur: number | null, depth = 0): Slice {
  return {
    name,
    cat: "probe",
    start_ns: start,
    dur_ns: dur,
    depth,
    seq: 1,
    error: false,
    process: "p",
    index: name === "item" ? start : null,
    batch: null,
  }
}

test("a slice stands where it was, in percent", () => {
  expect(bars([slice("forward", 100, 50)], 0, 200)).toMatchObject([{ left: 50, width: 25, row: 0, count: 1 }])
})

test("a slice that is still open reaches the end, and one that began before is cut", () => {
  expect(bars([slice("forward", 100, null), slice("backward", -50, 100, 1)], 0, 200)).toMatchObject([
    { left: 50, width: 50 },
    { left: 0, width: 25 },
  ])
})

test("what lies outside is left out", () => expect(bars([slice("forward", 300, 10)], 0, 200)).toEqual([]))

test("a thousand tiny items become a few bars, and none is lost", () => {
  const found = bars(
    Array.from({ length: 1000 }, (_, at) => slice("item", at * 100, 90, 1)),
    0,
    1_000_000,
  )
  expect(found.length).toBeLessThan(20)
  expect(found.reduce((sum, bar) => sum + bar.count, 0)).toBe(1000)
})

test("lanes of a rank stand together, and depths begin at the top", () => {
  const lane = (rank: number, worker: number | null, depth: number): StepLane => ({
    lane: `${rank}-${worker}`,
    rank,
    role: "main",
    worker,
    thread: "MainThread",
    slices: [slice("forward", 0, 10, depth)],
  })
  const found = groups([lane(0, null, 2), lane(0, 1, 0), lane(1, null, 0)], 0, 10)
  expect(found.map(group => [group.rank, group.lanes.map(one => one.label)])).toEqual([
    [0, ["main thread", "worker 1"]],
    [1, ["main thread"]],
  ])
  expect(found[0]?.lanes[0]?.rows).toBe(1)
})

test("names are words, and colours are those of phases", () => {
  expect([
    sliceName(slice("item", 7, 1)),
    sliceName(slice("input_wait", 0, 1)),
    sliceName(slice("iter", 0, 1)),
  ]).toEqual(["item 7", "input wait", "start of the loader"])
  expect([phaseOf(slice("item", 7, 1)), phaseOf(slice("forward", 0, 1)), phaseOf(slice("mine", 0, 1))]).toEqual([
    "input_wait",
    "forward",
    "residual",
  ])
})

test("a batch that was loaded long before does not squeeze the step", () => {
  expect(early(0, 1000, { start_ns: 950, dur_ns: 50 })).toBe(true)
  expect(early(0, 100, { start_ns: 50, dur_ns: 50 })).toBe(false)
})

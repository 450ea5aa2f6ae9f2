import { expect, test } from "vitest"
import type { LaneSlices, Slices } from "../src/api/timeline"
import { sliceText } from "../src/pages/timeline/layout"

const column = (...values: number[]) => Float64Array.from(values)
const own: LaneSlices = {
  start: column(0, 10, 20),
  dur: column(1.2e6, 4e6, Number.NaN),
  depth: column(0, 0, 0),
  name: column(0, 0, 1),
  count: column(1, 40, 1),
  seq: column(1, Number.NaN, 3),
  busy: column(1.2e6, 3.1e6, 0),
}
const slices: Slices = { from: 0, to: 30, names: ["forward", "fetch"], cats: ["probe", "probe"], lanes: new Map() }

test("a slice says its name and time; of several spans also how many, and the time inside of them", () => {
  expect(sliceText(slices, own, 0)).toBe("forward, 1.20 ms")
  expect(sliceText(slices, own, 1)).toBe("40 spans, longest forward, 3.10 ms of 4.00 ms")
  expect(sliceText(slices, own, 2)).toBe("fetch a batch, not ended")
})

import { expect, test } from "vitest"
import { inside, panned, zoomed } from "../src/parts/chart/window"

const whole = [0, 100] as const

test("a window stays inside the whole", () => {
  expect(inside([-5, 20.4], whole)).toEqual([0, 20])
  expect(inside([40, 30], whole)).toEqual([30, 40])
  expect(inside([200, 300], whole)).toEqual([99, 100])
})

test("a window on everything is none", () => expect(inside([-1, 101], whole)).toBeNull())

test("panning stops at the ends and keeps the width", () => {
  expect(panned([80, 90], whole, 5)).toEqual([90, 100])
  expect(panned([20, 40], whole, -0.5)).toEqual([10, 30])
})

test("zooming keeps the place under the cursor", () => {
  expect(zoomed([0, 100], whole, 0.5, 20)).toEqual([10, 60])
  expect(zoomed([10, 60], whole, 10)).toBeNull()
})

test("one cannot look closer than one step", () => expect(zoomed([10, 11], whole, 0.1)).toEqual([10, 11]))

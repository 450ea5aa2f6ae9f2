import { describe, expect, it } from "vitest"
import { differences, ratios } from "../src/pages/compare/scale"

describe("the axis of a comparison", () => {
  it("has no difference in the middle, and twice as far from it as half", () => {
    const { at } = ratios([2, null, 0.5])
    expect(at(1)).toBe(0.5)
    expect(at(2) - 0.5).toBeCloseTo(0.5 - at(0.5))
    expect(at(1000)).toBe(1)
  })
  it("has differences on both sides", () => {
    const { at } = differences([-5, 10])
    expect(at(0)).toBe(0.5)
    expect(at(10)).toBeGreaterThan(0.9)
    expect(at(-5)).toBeGreaterThan(0.2)
  })
})

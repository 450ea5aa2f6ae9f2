import { describe, expect, it } from "vitest"
import type { LayerNode } from "../src/api/types"
import { below, boxes } from "../src/pages/layers/icicle"

const node = (layer: string, ns: number, inside = 0): LayerNode => ({
  layer,
  name: layer,
  parent: layer.includes(".") ? layer.slice(0, layer.lastIndexOf(".")) : null,
  depth: layer.split(".").length - 1,
  inside,
  type: null,
  steps: 1,
  calls: 1,
  forward_ns: ns,
  backward_ns: null,
  share: null,
  activation_bytes: null,
  parameter_bytes: null,
  gradient_bytes: null,
  compiled: false,
  learned: { samples: 0, gradient_norm: null, update_ratio: null, nonfinite: null, dead: null },
})
const model = [node("a", 60, 2), node("a.x", 40), node("a.y", 10), node("b", 40)]

describe("an icicle", () => {
  it("has each layer below its part, as wide as it costs", () => {
    const found = boxes(model, "time").map(one => [one.node.layer, one.level, one.left, one.width])
    expect(found[0]).toEqual(["a", 0, 0, 0.6])
    expect(found.find(([name]) => name === "a.x")).toEqual(["a.x", 1, 0, 0.4])
    expect(found.find(([name]) => name === "b")).toEqual(["b", 0, 0.6, 0.4])
  })
  it("fits what is inside into its part where the clocks differ", () => {
    const found = boxes([node("a", 10, 1), node("a.x", 20)], "time")
    expect(found.map(one => one.width)).toEqual([1, 1])
  })
  it("can begin at a part", () => {
    expect(below(model, "a").map(one => one.layer)).toEqual(["a", "a.x", "a.y"])
    expect(boxes(below(model, "a"), "time")[0]?.width).toBe(1)
    expect(below(model, "none")).toEqual(model)
  })
  it("leaves out what was not measured", () => {
    expect(boxes(model, "memory")).toEqual([])
  })
})

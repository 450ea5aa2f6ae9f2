import { expect, test } from "vitest"
import type { Call } from "../src/api/types"
import { boxes, way } from "../src/pages/samples/flame"

const call = (name: string, dur_ns: number, calls: Call[] = []): Call => ({ name, dur_ns, calls })
const whole = call("all", 100, [
  call("forward", 30, [call("model", 30)]),
  call("residual", 70, [call("read", 20), call("decode", 50, [call("resize", 50)])]),
])

test("calls stand by their time, each above what it called", () => {
  const found = boxes(whole, undefined).map(one => [one.call.name, one.left, one.width, one.level])
  expect(found).toEqual([
    ["residual", 0, 0.7, 0],
    ["decode", 0, 0.5, 1],
    ["resize", 0, 0.5, 2],
    ["read", 0.5, 0.2, 1],
    ["forward", 0.7, 0.3, 0],
    ["model", 0.7, 0.3, 1],
  ])
})

test("one call has the whole width, with the phase it belongs to", () => {
  const found = boxes(whole, "1.1")
  expect(found.map(one => [one.call.name, one.path, one.width, one.level, one.phase])).toEqual([
    ["decode", "1.1", 1, 0, "residual"],
    ["resize", "1.1.0", 1, 1, "residual"],
  ])
  expect(way(whole, "1.1").map(one => one.name)).toEqual(["all", "residual", "decode"])
})

test("a call that is not there any more leads back to all", () => {
  expect(way(whole, "7.1")).toEqual([whole])
  expect(boxes(whole, "7.1").length).toBe(6)
})

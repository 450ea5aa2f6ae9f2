import { expect, test } from "vitest"
import { appended, extended } from "../src/api/recent"
import type { Line, Recent } from "../src/api/types"

function recent(steps: number[], dur: number): Recent {
  const each = <T>(value: T) => steps.map(() => value)
  return {
    step: steps,
    time_ns: steps.map(step => step * 100),
    dur_ns: each(dur),
    min_ns: each(dur - 1),
    max_ns: each(dur + 1),
    slowest: each(3),
    samples: each(8),
    phases: { forward: each(dur / 2) },
    loss: 1.5,
  }
}

function line(name: string, x: number[]): Line {
  const y = x.map(() => 7)
  return {
    name,
    unit: "ns",
    rank: null,
    x,
    y,
    min: y,
    max: y,
    clipped: 0,
    slowest: name === "step" ? x.map(at => [at, 0]) : null,
  }
}

test("new steps stand behind those that are known", () => {
  const found = appended({ all: recent([1, 2], 10) }, { all: recent([3], 20), "0": recent([3], 30) })
  expect(found.all?.step).toEqual([1, 2, 3])
  expect(found.all?.phases.forward).toEqual([5, 5, 10])
  expect(found["0"]?.dur_ns).toEqual([30])
})

test("a stream that begins anew replaces what was known", () => {
  expect(appended({ all: recent([1, 2], 10) }, { all: recent([2, 3], 20) }).all?.step).toEqual([2, 3])
})

test("lines go on with the steps that the server has not answered yet", () => {
  const [step, forward] = extended([line("step", [0, 5]), line("phase:forward", [0, 5])], recent([5, 6, 7], 10), "step")
  expect(step?.x).toEqual([0, 5, 6, 7])
  expect(step?.max).toEqual([7, 7, 11, 11])
  expect(step?.slowest?.at(-1)).toEqual([7, 3])
  expect(forward?.y).toEqual([7, 7, 5, 5])
})

test("of the loss only the last value is new", () => {
  expect(extended([line("loss", [0])], recent([1, 2], 10), "step")[0]?.y).toEqual([7, null, 1.5])
})

test("samples have no steps, and stay as they are", () => {
  const own = line("rss:main", [0])
  expect(extended([own], recent([1], 10), "step")[0]).toBe(own)
})

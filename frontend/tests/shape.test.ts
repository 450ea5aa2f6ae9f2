import { describe, expect, test } from "vitest"
import type { Line } from "../src/api/types"
import { cut, joined, nearest, positive, stacked } from "../src/parts/chart/shape"

describe("a stack", () => {
  test("the top line is the sum of all", () => {
    expect(
      stacked([
        [1, 2],
        [3, 4],
        [null, 1],
      ]),
    ).toEqual([
      [1, 2],
      [4, 6],
      [4, 7],
    ])
  })

  test("where nothing is known there is a gap, and not a zero", () => {
    expect(
      stacked([
        [1, null],
        [2, null],
      ])[1],
    ).toEqual([3, null])
  })
})

describe("cutting off", () => {
  test("one huge value among many is cut off, counted, and where it was is known", () => {
    const values = [2000, ...Array.from({ length: 99 }, () => 10)]
    expect(cut(values)).toEqual({ limit: 15, count: 1, highest: 2000, at: 0 })
  })

  test("values that reach alike are all drawn", () => {
    expect(cut(Array.from({ length: 100 }, (_, at) => at)).limit).toBeNull()
  })

  test("of a handful of values none is cut off", () => expect(cut([1, 1, 1, 500]).limit).toBeNull())
})

test("lines with different places stand on one axis", () => {
  const line = (x: number[], y: number[]) => ({ x, y }) as unknown as Line
  expect(joined([line([1, 3], [10, 30]), line([2, 3], [5, 6])])).toEqual({
    x: [1, 2, 3],
    values: [
      [10, null, 30],
      [null, 5, 6],
    ],
  })
})

test("the nearest place is found on both sides", () => {
  expect([
    nearest([0, 10, 20], -5),
    nearest([0, 10, 20], 14),
    nearest([0, 10, 20], 16),
    nearest([0, 10, 20], 99),
    nearest([], 1),
  ]).toEqual([0, 1, 2, 2, -1])
})

test("a logarithm hides what is not positive, and says how much", () => {
  expect(positive([1, 0, -2, null])).toEqual({ values: [1, null, null, null], hidden: 2 })
})

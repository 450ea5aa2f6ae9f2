import { expect, test } from "vitest"
import { cells } from "../src/pages/hosts/heat"
import { merged } from "../src/pages/learning/merge"

test("neighbours of one colour are one cell, with the latest rank; what is not late is not drawn", () => {
  const host = { host: "a", late_ns: [null, 0, 100, 101, -5, 50], rank: [null, 1, 2, 3, 4, 5] }
  expect(cells(host, 100)).toEqual([
    { at: 2, width: 2, level: 8, late: 101, rank: 3 },
    { at: 5, width: 1, level: 4, late: 50, rank: 5 },
  ])
})

test("lines that were measured at different times have gaps on the common axis", () => {
  const found = merged([
    { name: "a", x: [1, 3], y: [10, 30] },
    { name: "b", x: [2, 3], y: [20, 31] },
  ])
  expect(found).toEqual({
    x: [1, 2, 3],
    y: [
      [10, null, 30],
      [null, 20, 31],
    ],
  })
})

import { expect, test } from "vitest"
import { NONE, ofQuery, read, toQuery, write } from "../src/pages/steps/filter"

test.each([
  ["> 3x median", { where: ["slow"], over: 3 }],
  [">2.5x", { where: ["slow"], over: 2.5 }],
  ["loss is NaN", { where: ["nan"] }],
  ["rank 1", { rank: 1 }],
  ["step 100 to 200", { from: 100, to: 200 }],
  ["step >= 40", { from: 40 }],
  ["> 3x median, rank 1 and epoch 2", { where: ["slow"], rank: 1, epoch: 2 }],
  ["nan, skipped", { where: ["nan", "skipped"] }],
  ["", {}],
])("%s is understood", (text, wanted) => {
  expect(read(text)).toEqual({ filter: { ...NONE, ...wanted }, wrong: null })
})

test("what is not understood is given back", () => expect(read("rank 1, purple").wrong).toBe("purple"))

test("a filter that was written is read again, and goes through the address", () => {
  for (const text of [
    "> 3x median, rank 1",
    "loss is nan, step 10 to 20",
    "> 2.5x median, epoch 3, step >= 4",
    "warm-up",
  ]) {
    const { filter } = read(text)
    expect(write(filter)).toBe(text)
    const query = Object.fromEntries(
      Object.entries(toQuery(filter)).flatMap(([name, value]) => (value === null ? [] : [[name, String(value)]])),
    )
    expect(ofQuery(query)).toEqual(filter)
  }
})

test("an address with nonsense is no filter", () => {
  expect(ofQuery({ where: "x,nan", over: "y", rank: "z" })).toEqual({ ...NONE, where: ["nan"] })
})

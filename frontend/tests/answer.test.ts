import { describe, expect, it } from "vitest"
import type { SqlAnswer } from "../src/api/types"
import { csv, drawn, lines, written } from "../src/pages/sql/answer"

const answer: SqlAnswer = {
  columns: [
    { name: "step", type: "BIGINT" },
    { name: "dur_ns", type: "BIGINT" },
    { name: "loss", type: "DOUBLE" },
    { name: "name", type: "VARCHAR" },
  ],
  rows: [
    [2, 3_000_000, "NaN", 'a "b", c'],
    [1, 2_000_000, 0.5, null],
    [null, 1, 1, "x"],
  ],
  truncated: false,
  ns: 1,
}
const [step, took, loss, name] = answer.columns as [never, never, never, never]

describe("an answer of SQL", () => {
  it("writes numbers as their column says", () => {
    expect(written(took, 3_000_000)).toBe("3.00 ms")
    expect(written(step, 1234)).toBe("1234")
    expect(written(loss, "NaN")).toBe("NaN")
    expect(written(name, null)).toBe("null")
  })
  it("is drawn along its first column, in one unit", () => {
    expect(drawn(answer.columns, undefined, [])).toEqual({ kind: "lines", x: step, y: [took] })
    expect(drawn(answer.columns, undefined, ["loss"])?.y).toEqual([loss])
    expect(drawn(answer.columns, "name", [])).toEqual({ kind: "bars", x: name, y: [step] })
    expect(drawn([name], undefined, [])).toBeNull()
  })
  it("has its lines in the order of the axis, without what is not finite", () => {
    expect(lines(answer, { kind: "lines", x: step, y: [took, loss] })).toEqual({
      x: [1, 2],
      y: [
        [2_000_000, 3_000_000],
        [0.5, null],
      ],
    })
  })
  it("becomes text for a spreadsheet", () => {
    expect(csv(answer).split("\n")[1]).toBe('2,3000000,NaN,"a ""b"", c"')
  })
})

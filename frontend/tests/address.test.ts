import { describe, expect, test } from "vitest"
import { format, match, parse, to } from "../src/app/address"

describe("addresses", () => {
  test("an address that was written is read as it was meant", () => {
    const written = to.run("a b/c?d#e", { log: 1, from: 3, nothing: null })
    expect(written).toBe("/runs/a%20b%2Fc%3Fd%23e?from=3&log=1")
    expect(parse(written)).toEqual({ path: "/runs/a%20b%2Fc%3Fd%23e", query: { from: "3", log: "1" } })
    expect(match("/runs/:run", parse(written).path)).toEqual({ run: "a b/c?d#e" })
  })

  test("a pattern fits whole paths only", () => {
    expect(match("/runs/:run", "/runs/")).toBeNull()
    expect(match("/runs/:run", "/runs/x/steps")).toBeNull()
    expect(match("/runs/:run/steps/:rank/:step", "/runs/x/steps/-/7")).toEqual({ run: "x", rank: "-", step: "7" })
    expect(match("/", "/")).toEqual({})
  })

  test("the key of an item may hold slashes", () => {
    const address = to.item("x", { index: null, id: "a/b c.png" })
    expect(match("/runs/:run/items/*index", parse(address).path)).toEqual({ run: "x", index: "id:a/b c.png" })
  })

  test("a path that is no text is left as it is", () => {
    expect(match("/runs/:run", "/runs/%E0%A4%A")).toEqual({ run: "%E0%A4%A" })
  })

  test("parameters stand in one order, so that one view has one address", () => {
    expect(format("/x", { b: 2, a: 1 })).toBe(format("/x", { a: 1, b: 2 }))
  })
})

import { expect, test } from "vitest"
import { linked } from "../src/app/words"

const whose = { run: "r", rank: 0, layers: ["blocks.3.attn"] }
const links = (sentence: string) =>
  linked(sentence, whose)
    .filter(one => one.to)
    .map(one => [one.text, one.to])

test("an item, a step and a rank lead to their pages", () => {
  expect(links("Slowest: item 77 (200 ms, loaded 4 times) at step 1,340 of rank 1.")).toEqual([
    ["item 77", "/runs/r/items/77"],
    ["step 1,340", "/runs/r/steps/0/1340"],
    ["rank 1", "/runs/r?rank=1"],
  ])
})

test("each of several leads to its own", () => {
  expect(links("Check items 3, 8 and 12.")).toEqual([
    ["3", "/runs/r/items/3"],
    ["8", "/runs/r/items/8"],
    ["12", "/runs/r/items/12"],
  ])
})

test("numbers that count something are no links", () => {
  expect(
    links("3 items take over 5.00 ms; 92 % of the step time; in 3 of 40 steps; rank 40 % slower; step 5 ms"),
  ).toEqual([])
})

test("a layer leads to its page", () => {
  expect(links("The first NaN came out of blocks.3.attn (forward).")).toEqual([
    ["blocks.3.attn", "/runs/r/layers/blocks.3.attn"],
  ])
})

test("nothing of the sentence is lost", () => {
  const sentence = "Slowest: item 77, steps 1 and 2. <b>rank 3</b>"
  expect(
    linked(sentence, whose)
      .map(one => one.text)
      .join(""),
  ).toBe(sentence)
})

test("what stands between backticks is code, and no link", () => {
  expect(linked("Run `sonde deep --item 3`, then see step 2.", whose)).toEqual([
    { text: "Run ", to: null },
    { text: "sonde deep --item 3", to: null, code: true },
    { text: ", then see ", to: null },
    { text: "step 2", to: "/runs/r/steps/0/2" },
    { text: ".", to: null },
  ])
  expect(linked("a ` alone", whose)).toEqual([{ text: "a ` alone", to: null }])
})

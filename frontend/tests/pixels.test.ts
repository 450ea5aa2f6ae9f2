import { expect, test } from "vitest"
import { unpack } from "../src/api/array"
import { extent, histogram, NOT_FINITE, pixels } from "../src/parts/pixels"

test("brightness goes from the least to the most, and NaN stands out", () => {
  const values = [0, 5, 10, Number.NaN]
  const found = pixels(values, [2, 2, 1], extent(values), null)
  expect([...found.slice(0, 4)]).toEqual([0, 0, 0, 255])
  expect([...found.slice(8, 12)]).toEqual([255, 255, 255, 255])
  expect([...found.slice(12, 15)]).toEqual([...NOT_FINITE])
})

test("an image of three colours has colours, or one of them in grey", () => {
  const values = [0, 5, 10]
  expect([...pixels(values, [1, 1, 3], { low: 0, high: 10 }, null)]).toEqual([0, 128, 255, 255])
  expect([...pixels(values, [1, 1, 3], { low: 0, high: 10 }, 2)]).toEqual([255, 255, 255, 255])
})

test("what is not finite has no part in the extent and the histogram", () => {
  const values = [1, 3, Number.NaN, Number.POSITIVE_INFINITY]
  expect(extent(values)).toEqual({ low: 1, high: 3 })
  expect(histogram(values, { low: 1, high: 3 }, 2)).toEqual([1, 1])
  expect(extent([Number.NaN])).toEqual({ low: 0, high: 0 })
})

test("an array of the server has its head and its numbers", () => {
  const head = '{"shape":[2],"dtype":"float32","image":null,"stride":1}'
  const line = `${head}${" ".repeat((8 - ((head.length + 1) % 8)) % 8)}\n`
  const numbers = new Uint8Array(new Float64Array([1.5, Number.NaN]).buffer)
  const content = new Uint8Array([...new TextEncoder().encode(line), ...numbers]).buffer
  const found = unpack(content)
  expect(found.head.shape).toEqual([2])
  expect([...found.values]).toEqual([1.5, Number.NaN])
})

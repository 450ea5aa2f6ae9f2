// What a chart draws, made from what the server says: plain functions over arrays.
import type { Line } from "../../api/types"

export type Values = (number | null)[]

/** Each line on top of those before it. A missing value adds nothing; where all are missing, there is nothing. */
export function stacked(lines: Values[]): Values[] {
  const length = lines[0]?.length ?? 0
  const known = Array.from({ length }, (_, at) => lines.some(line => line[at] !== null && line[at] !== undefined))
  const sums: number[] = new Array(length).fill(0)
  return lines.map(line =>
    known.map((there, at) => {
      sums[at] = (sums[at] ?? 0) + (line[at] ?? 0)
      return there ? (sums[at] ?? 0) : null
    }),
  )
}

export interface Cut {
  /** The highest value that is drawn; null: all are. */
  limit: number | null
  /** How many points lie above it, the highest of them, and where it is. */
  count: number
  highest: number
  at: number
}

const RARE = 0.05 // of the points may be cut off, and at least one
const FAR = 3 // times what the others reach: less is not worth it

/** Where to cut a chart off, so that a few huge values do not flatten the others. They are counted, and that is said. */
export function cut(values: Values): Cut {
  const known = values.flatMap((value, at) => (value === null ? [] : [{ value, at }]))
  const sorted = known.map(one => one.value).sort((a, b) => a - b)
  const whole = sorted.at(-1) ?? 0
  const most = sorted[sorted.length - 1 - Math.max(1, Math.round(sorted.length * RARE))] ?? 0
  const limit = most * 1.5
  if (sorted.length < 10 || most <= 0 || whole <= FAR * most) return { limit: null, count: 0, highest: whole, at: -1 }
  const above = known.filter(one => one.value > limit)
  return { limit, count: above.length, highest: whole, at: above.find(one => one.value === whole)?.at ?? -1 }
}

/** Lines with different places on one axis: each gets a value, or null, at all of them. */
export function joined(lines: Line[]): { x: number[]; values: Values[] } {
  const first = lines[0]
  if (first && lines.every(one => one.x === first.x || same(one.x, first.x)))
    return { x: first.x, values: lines.map(one => one.y) }
  const x = [...new Set(lines.flatMap(one => one.x))].sort((a, b) => a - b)
  const place = new Map(x.map((value, at) => [value, at]))
  const values = lines.map(one => {
    const all: Values = new Array(x.length).fill(null)
    for (const [at, value] of one.x.entries()) all[place.get(value) as number] = one.y[at] ?? null
    return all
  })
  return { x, values }
}

function same(a: number[], b: number[]): boolean {
  return a.length === b.length && a.every((value, at) => value === b[at])
}

/** The place of the nearest value in a sorted list; -1 if it is empty. */
export function nearest(x: number[], value: number): number {
  let low = 0
  let high = x.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if ((x[middle] as number) < value) low = middle + 1
    else high = middle
  }
  const before = x[low - 1]
  if (before !== undefined && value - before < Math.abs((x[low] as number) - value)) return low - 1
  return x.length ? low : -1
}

/** Only what a logarithm can show. */
export function positive(values: Values): { values: Values; hidden: number } {
  let hidden = 0
  const kept = values.map(value => {
    if (value === null || value > 0) return value
    hidden++
    return null
  })
  return { values: kept, hidden }
}

const SHORT = [1, 2, 5, 10, 20, 50, 100, 200, 500].flatMap(one => [one, one * 1e3, one * 1e6]).sort((a, b) => a - b)
const SECOND = 1e9
const LONG = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000,
]
/** Distances between two labels of an axis of time, in ns. */
export const TIME_TICKS = [...new Set([...SHORT, ...LONG.map(one => one * SECOND)])]
/** The same for steps: whole ones. */
export const STEP_TICKS = [1, 2, 5]
  .flatMap(one => Array.from({ length: 12 }, (_, power) => one * 10 ** power))
  .sort((a, b) => a - b)

// What of the timeline is in its address, and back.
import type { Spot, Stop } from "../../api/timeline"
import { inside, type Range } from "../../parts/chart/window"

export interface Picked {
  lane: string
  seq: number
  at: number
}

type Query = Record<string, string | undefined>

function number(text: string | undefined): number | null {
  return text !== undefined && /^-?\d{1,17}$/.test(text) ? Number(text) : null
}

/** The window of time; without a valid one, the whole run. */
export function shownRange(query: Query, whole: Range): Range {
  const from = number(query.from)
  const to = number(query.to)
  if (from === null || to === null || to <= from || to <= whole[0] || from >= whole[1]) return whole
  return inside([from, to], whole) ?? whole
}

export function picked(query: Query): Picked | null {
  const seq = number(query.seq)
  const at = number(query.at)
  return query.lane && seq !== null && at !== null ? { lane: query.lane, seq, at } : null
}

/** The stretch whose sums are shown. */
export function summed(query: Query): Range | null {
  const from = number(query.sumfrom)
  const to = number(query.sumto)
  return from === null || to === null || to <= from ? null : [from, to]
}

/** The parameters that show a span: it fills a good part of the window. */
export function focus(start: number, dur: number | null, whole: Range, part = 0.4): Record<string, number | null> {
  const length = Math.max(dur ?? 0, 1000)
  const room = (length / part - length) / 2
  const range = inside([start - room, start + length + room], whole)
  return { from: range?.[0] ?? null, to: range?.[1] ?? null }
}

export function pick(spot: Spot | Stop): Record<string, string | number | null> {
  return { lane: spot.lane, seq: spot.seq, at: spot.start_ns }
}

// What the server says about the timeline: lanes, slices, one span, names and sums.
import { type Numbers, unpack } from "./array"

export interface LaneHead {
  id: string
  host: string
  rank: number | null
  role: string | null
  worker: number | null
  thread: string | null
  process: string
  events: number
  depth: number
}

export interface Lanes {
  start_ns: number
  end_ns: number
  lanes: LaneHead[]
}

export interface SlicesHead {
  from: number
  to: number
  names: string[]
  cats: string[]
  lanes: { lane: string; slices: number }[]
}

/** The slices of one lane, as columns. `dur` is NaN while open; `seq` is NaN where several spans are one slice. */
export interface LaneSlices {
  start: Float64Array
  dur: Float64Array
  depth: Float64Array
  name: Float64Array
  count: Float64Array
  seq: Float64Array
  /** Time inside of spans: less than `dur` where there are gaps between several. */
  busy: Float64Array
}

export interface Slices {
  from: number
  to: number
  names: string[]
  cats: string[]
  lanes: Map<string, LaneSlices>
}

/** Cuts the columns of all lanes into those of each. */
export function byLane({ head, values }: Numbers<SlicesHead>): Slices {
  const total = head.lanes.reduce((sum, one) => sum + one.slices, 0)
  let at = 0
  const lanes = new Map<string, LaneSlices>()
  for (const { lane, slices } of head.lanes) {
    const column = (place: number) => values.subarray(place * total + at, place * total + at + slices)
    lanes.set(lane, {
      start: column(0),
      dur: column(1),
      depth: column(2),
      name: column(3),
      count: column(4),
      seq: column(5),
      busy: column(6),
    })
    at += slices
  }
  return { from: head.from, to: head.to, names: head.names, cats: head.cats, lanes }
}

export const unpackSlices = (content: ArrayBuffer): Slices => byLane(unpack<SlicesHead>(content))

/** Where a span is. */
export interface Spot {
  lane: string
  start_ns: number
  dur_ns: number | null
  seq: number
}

export interface FoundName {
  name: string
  cat: string
  count: number
  total_ns: number | null
  longest_ns: number | null
  first: Spot
  longest: Spot
}

export interface NameSum {
  name: string
  cat: string
  count: number
  busy_ns: number | null
  longest_ns: number | null
}

/** A stop on the way from an item to its step. */
export interface Stop {
  kind: "item" | "fetch" | "batch" | "step"
  lane: string | null
  seq: number | null
  depth: number
  start_ns: number
  dur_ns: number | null
  rank?: number | null
  process?: string
  loader?: number
  round?: number
  batch?: number
  index?: number | null
  step?: number | null
}

export interface Span {
  event: {
    name: string
    cat: string
    start_ns: number
    dur_ns: number | null
    depth: number
    step: number | null
    epoch: number | null
    key: number | null
    error: boolean | null
    open: boolean | null
    args: unknown
    rank: number | null
    process: string
    thread: string | null
    seq: number
  }
  links: Stop[]
}

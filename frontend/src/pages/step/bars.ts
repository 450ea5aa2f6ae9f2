// What the threads and loader workers did in a step, as bars: plain functions over the slices that the server sent.
import type { Slice, StepLane } from "../../api/types"
import { phaseName } from "../../app/units"

export interface Bar {
  slice: Slice
  /** In percent of the width. */
  left: number
  width: number
  row: number
  /** So many slices with one name, each too narrow to be seen. */
  count: number
}

export interface Lane {
  key: string
  label: string
  rows: number
  bars: Bar[]
}

export interface Group {
  rank: number | null
  lanes: Lane[]
}

const NARROW = 0.12 // percent of the width

/** One lane: its bars from `from` to `to`. Neighbours of one name that are too narrow become one bar. */
export function bars(slices: Slice[], from: number, to: number): Bar[] {
  const scale = 100 / Math.max(to - from, 1)
  const found: Bar[] = []
  const last = new Map<number, Bar>()
  for (const slice of slices) {
    const end = slice.start_ns + (slice.dur_ns ?? to - slice.start_ns)
    if (end < from || slice.start_ns > to) continue
    const left = Math.max(0, (slice.start_ns - from) * scale)
    const width = Math.min(100, (end - from) * scale) - left
    const before = last.get(slice.depth)
    const near = before && left - (before.left + before.width) < NARROW
    if (
      before &&
      near &&
      width < NARROW &&
      (before.width < NARROW || before.count > 1) &&
      before.slice.name === slice.name
    ) {
      before.width = left + width - before.left
      before.count++
      continue
    }
    const bar = { slice, left, width, row: slice.depth, count: 1 }
    found.push(bar)
    last.set(slice.depth, bar)
  }
  return found
}

/** The lanes of each rank below each other. */
export function groups(lanes: StepLane[], from: number, to: number): Group[] {
  const found: Group[] = []
  for (const lane of lanes) {
    const drawn = bars(lane.slices, from, to)
    if (!drawn.length) continue
    let group = found.find(one => one.rank === lane.rank)
    if (!group) {
      group = { rank: lane.rank, lanes: [] }
      found.push(group)
    }
    const least = drawn.reduce((low, bar) => Math.min(low, bar.row), Number.POSITIVE_INFINITY)
    for (const bar of drawn) bar.row -= least
    group.lanes.push({
      key: lane.lane,
      label: label(lane),
      rows: 1 + Math.max(...drawn.map(bar => bar.row)),
      bars: drawn,
    })
  }
  return found
}

function label(lane: StepLane): string {
  if (lane.worker !== null) return `worker ${lane.worker}`
  return lane.thread && lane.thread !== "MainThread" ? lane.thread : "main thread"
}

const NAMES: Record<string, string> = {
  iter: "start of the loader",
  iter_end: "end of the loader",
  fetch: "fetch a batch",
  item: "item",
}

/** A slice in words. */
export function sliceName(slice: Pick<Slice, "name" | "cat" | "index">): string {
  if (slice.cat !== "probe") return slice.name
  if (slice.name === "item" && slice.index !== null) return `item ${slice.index}`
  return NAMES[slice.name] ?? phaseName(slice.name)
}

const WAITING = new Set(["iter", "iter_end", "fetch", "item", "collate"])
const KNOWN = new Set([
  "input_wait",
  "h2d",
  "forward",
  "backward",
  "optimizer",
  "communication",
  "checkpoint",
  "evaluation",
])

/** The phase whose colour a slice has. */
export function phaseOf(slice: Pick<Slice, "name" | "cat">): string {
  if (WAITING.has(slice.name)) return "input_wait"
  if (KNOWN.has(slice.name)) return slice.name
  for (const phase of KNOWN) if (slice.name.startsWith(phase) || slice.cat.includes(phase)) return phase
  return "residual"
}

const MUCH = 7 // times as long as the step

/** Whether the batch was loaded so long before that the step itself would be a line: then only the step is shown at first. */
export function early(from: number, to: number, step: { start_ns: number; dur_ns: number }): boolean {
  return to - from > MUCH * step.dur_ns && step.start_ns > from
}

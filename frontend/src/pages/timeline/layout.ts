// Where each lane stands, what lies under the pointer, and how the axis is labelled: plain functions.
import type { LaneHead, LaneSlices, Slices } from "../../api/timeline"
import { count, duration } from "../../app/units"
import { TIME_TICKS } from "../../parts/chart/shape"
import type { Range } from "../../parts/chart/window"
import { sliceName } from "../step/bars"

export interface Row {
  key: string
  kind: "host" | "rank" | "lane"
  label: string
  top: number
  height: number
  lane: LaneHead | null
}

export const BAR = 17 // px of one depth
const PADDING = 6 // px of a lane beside its bars
const HEADER = 24 // px
const NARROW = 3 // px beside a slice that still hit it

/** The lanes below each other, with a header for each rank, and for each host if there are several. */
export function layout(lanes: LaneHead[]): { rows: Row[]; height: number } {
  const several = new Set(lanes.map(one => one.host)).size > 1
  const rows: Row[] = []
  let top = 0
  const add = (kind: Row["kind"], key: string, label: string, height: number, lane: LaneHead | null = null) => {
    rows.push({ kind, key, label, top, height, lane })
    top += height
  }
  const labels = new Map<string, number>()
  let host: string | null = null
  let process: string | null = null
  for (const one of lanes) {
    if (several && one.host !== host) add("host", `host ${one.host} ${top}`, one.host, HEADER)
    if (one.process !== process) add("rank", `rank ${one.process}`, numbered(rankLabel(one), labels), HEADER)
    host = one.host
    process = one.process
    add("lane", one.id, laneLabel(one), PADDING + BAR * (one.depth + 1), one)
  }
  return { rows, height: top }
}

/** `rank 0`, and where the job was started again `rank 0 (2)`. */
function numbered(label: string, seen: Map<string, number>): string {
  const number = (seen.get(label) ?? 0) + 1
  seen.set(label, number)
  return number > 1 ? `${label} (${number})` : label
}

function rankLabel(lane: LaneHead): string {
  return lane.rank === null ? (lane.role ?? lane.process) : `rank ${lane.rank}`
}

export function laneLabel(lane: LaneHead): string {
  const thread = lane.thread && lane.thread !== "MainThread" ? lane.thread : null
  if (lane.worker !== null) return thread ? `worker ${lane.worker}, ${thread}` : `worker ${lane.worker}`
  return thread ?? "main thread"
}

/** The rows that reach into a window. */
export function visible(rows: Row[], top: number, height: number): Row[] {
  return rows.filter(one => one.top < top + height && one.top + one.height > top)
}

/** The slice at a place of a lane: the last one that begins before it; null: there is none. */
export function hit(slices: LaneSlices, depth: number, at: number, nsPerPixel: number): number | null {
  const room = NARROW * nsPerPixel
  let best: number | null = null
  let distance = Number.POSITIVE_INFINITY
  for (let place = 0; place < slices.start.length; place++) {
    if (slices.depth[place] !== depth) continue
    const start = slices.start[place] as number
    const end = endOf(slices, place)
    const far = at < start ? start - at : at > end ? at - end : 0
    if (far > room || far > distance) continue
    best = place
    distance = far
  }
  return best
}

/** When a slice ends; one that is open does not. */
export function endOf(slices: LaneSlices, place: number): number {
  const dur = slices.dur[place] as number
  return Number.isNaN(dur) ? Number.POSITIVE_INFINITY : (slices.start[place] as number) + dur
}

/** A slice in words: `forward, 1.20 ms`, or `40 spans, longest forward, 3.10 ms of 4.00 ms`. */
export function sliceText({ names, cats }: Slices, own: LaneSlices, at: number): string {
  const number = own.name[at] as number
  const name = sliceName({ name: names[number] ?? "", cat: cats[number] ?? "", index: null })
  const dur = own.dur[at] as number
  if (Number.isNaN(dur)) return `${name}, not ended`
  if ((own.count[at] as number) === 1) return `${name}, ${duration(dur)}`
  return `${count(own.count[at])} spans, longest ${name}, ${duration(own.busy[at])} of ${duration(dur)}`
}

/** The slice before or behind another one of its depth; null: none is there. */
export function neighbour(slices: LaneSlices, depth: number, start: number, by: 1 | -1): number | null {
  let best: number | null = null
  for (let place = 0; place < slices.start.length; place++) {
    const own = slices.start[place] as number
    if (slices.depth[place] !== depth || (by > 0 ? own <= start : own >= start)) continue
    const known = best === null ? null : (slices.start[best] as number)
    if (known === null || (by > 0 ? own < known : own > known)) best = place
  }
  return best
}

/** What is asked for: more than is seen, so that moving a little needs nothing new. */
export function asked(range: Range, whole: Range, width: number): { from: number; to: number; pixels: number } {
  const span = range[1] - range[0]
  const from = Math.max(whole[0], Math.floor(range[0] - span / 2))
  const to = Math.min(whole[1], Math.ceil(range[1] + span / 2))
  const pixels = Math.round((width * (to - from)) / Math.max(span, 1))
  return { from, to, pixels: Math.min(Math.max(pixels, 10), 10_000) }
}

/** Whether slices that are there can stand for a window: they cover it in about the detail it has. */
export function covers(have: { from: number; to: number; pixels: number }, range: Range, width: number): boolean {
  const detail = (have.to - have.from) / have.pixels
  const wanted = (range[1] - range[0]) / Math.max(width, 1)
  return have.from <= range[0] && have.to >= range[1] && detail <= wanted * 1.5 && detail >= wanted / 4
}

/** Places of labels on the axis. */
export function ticks(range: Range, width: number, room = 92): { step: number; at: number[] } {
  const least = ((range[1] - range[0]) * room) / Math.max(width, 1)
  const step = TIME_TICKS.find(one => one >= least) ?? 10 ** Math.ceil(Math.log10(Math.max(least, 1)))
  const at: number[] = []
  for (let one = Math.ceil(range[0] / step) * step; one <= range[1]; one += step) at.push(one)
  return { step, at }
}

/** A time since the start of the run, in as many digits as a distance needs: `8.1425 s`, `1:02:03.5`. */
export function clock(ns: number, step: number): string {
  const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(step, 1)) - 1e-9)))
  const sign = ns < 0 ? "-" : ""
  const seconds = Math.abs(ns) / 1e9
  if (seconds < 120) return `${sign}${seconds.toFixed(digits)} s`
  const two = (value: number) => String(value).padStart(2, "0")
  const rounded = Number(seconds.toFixed(digits))
  const hours = Math.floor(rounded / 3600)
  const minutes = Math.floor((rounded % 3600) / 60)
  const rest = (rounded % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0")
  return `${sign}${hours ? `${hours}:${two(minutes)}` : minutes}:${rest}`
}

// Draws the window of the timeline onto a canvas: axis, slices, the summed stretch, and the way from an item to its step.
import type { LaneSlices, Slices, Stop } from "../../api/timeline"
import { colour, lineColour, phaseColour, readableOn } from "../../app/theme"
import type { Range } from "../../parts/chart/window"
import { phaseOf, sliceName } from "../step/bars"
import { BAR, clock, endOf, type Row, ticks } from "./layout"
import type { Picked } from "./state"

export const RULER = 24 // px

export interface Scene {
  width: number
  height: number
  top: number
  range: Range
  rows: Row[]
  slices: Slices | null
  sum: Range | null
  picked: Picked | null
  links: Stop[]
  sought: string
}

const FONT = "11.5px system-ui, sans-serif"
const LETTER = 6.1 // px

/** The colour of a name: that of its phase, or one of the colours of lines. */
export function nameColour(name: string, cat: string): string {
  const phase = phaseOf({ name, cat })
  if (phase !== "residual" || cat === "probe") return phaseColour(phase)
  let sum = 0
  for (const letter of name) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 9973
  return lineColour(sum)
}

export function draw(context: CanvasRenderingContext2D, scene: Scene): void {
  const { width, height, range } = scene
  const x = (ns: number) => ((ns - range[0]) / (range[1] - range[0])) * width
  context.clearRect(0, 0, width, height)
  context.font = FONT
  context.textBaseline = "middle"
  grid(context, scene, x)
  context.save()
  context.beginPath()
  context.rect(0, RULER, width, height - RULER)
  context.clip()
  context.translate(0, RULER - scene.top)
  if (scene.sum) shade(context, scene, x)
  for (const row of scene.rows) lane(context, scene, row, x)
  path(context, scene, x)
  context.restore()
}

function grid(context: CanvasRenderingContext2D, { width, height, range }: Scene, x: (ns: number) => number): void {
  const { step, at } = ticks(range, width)
  context.fillStyle = colour("line")
  for (const one of at) context.fillRect(Math.round(x(one)), 0, 1, height)
  context.fillRect(0, RULER - 1, width, 1)
  context.fillStyle = colour("faint")
  for (const one of at) context.fillText(clock(one, step), x(one) + 4, RULER / 2)
}

function shade(context: CanvasRenderingContext2D, { sum, top, height }: Scene, x: (ns: number) => number): void {
  if (!sum) return
  context.globalAlpha = 0.5
  context.fillStyle = colour("band")
  context.fillRect(x(sum[0]), top, Math.max(x(sum[1]) - x(sum[0]), 1), height)
  context.globalAlpha = 1
}

function lane(context: CanvasRenderingContext2D, scene: Scene, row: Row, x: (ns: number) => number): void {
  context.fillStyle = colour("line")
  context.fillRect(0, row.top, scene.width, 1)
  const own = row.lane && scene.slices?.lanes.get(row.lane.id)
  if (!own || !scene.slices) return
  const { names, cats } = scene.slices
  const sought = scene.sought.toLowerCase()
  for (let place = 0; place < own.start.length; place++) {
    const end = endOf(own, place)
    const start = own.start[place] as number
    if (end < scene.range[0] || start > scene.range[1]) continue
    const left = Math.max(x(start), -2)
    const wide = Math.max(Math.min(x(end), scene.width + 2) - left, 1)
    const number = own.name[place] as number
    const name = names[number] ?? ""
    const cat = cats[number] ?? ""
    const many = (own.count[place] as number) > 1
    const fill = nameColour(name, cat)
    const fits = !sought || `${cat}.${name}`.toLowerCase().includes(sought)
    context.globalAlpha = fits ? (many ? density(own, place) : 1) : 0.18
    context.fillStyle = fill
    const y = row.top + 3 + BAR * (own.depth[place] as number)
    context.fillRect(left, y, wide > 3 ? wide - 0.6 : wide, BAR - 2)
    if (wide > 34 && fits) {
      const index = many ? `${own.count[place]} x ` : ""
      const text = index + sliceName({ name, cat, index: null })
      context.fillStyle = readableOn(fill)
      context.fillText(text.slice(0, Math.floor((wide - 8) / LETTER)), Math.max(left, 0) + 4, y + BAR / 2 - 0.5)
    }
    const chosen = scene.picked
    if (chosen && chosen.lane === row.lane?.id && chosen.at === start && chosen.seq === own.seq[place]) {
      context.globalAlpha = 1
      context.strokeStyle = colour("ink")
      context.lineWidth = 2
      context.strokeRect(left, y, Math.max(wide, 3), BAR - 2)
    }
  }
  context.globalAlpha = 1
}

/** How strongly several spans are drawn as one: by the share of its time that is inside of them. */
function density(own: LaneSlices, place: number): number {
  const dur = own.dur[place] as number
  return 0.25 + 0.6 * (dur > 0 ? Math.min(1, (own.busy[place] as number) / dur) : 1)
}

/** Arrows from each stop to the next, and the step around its spans. */
function path(context: CanvasRenderingContext2D, scene: Scene, x: (ns: number) => number): void {
  const place = new Map(scene.rows.flatMap(row => (row.lane ? [[row.lane.id, row] as const] : [])))
  const spots = scene.links.flatMap(stop => {
    const row = place.get(stop.lane ?? "")
    if (!row) return []
    const left = x(stop.start_ns)
    return [
      { stop, row, left, right: x(stop.start_ns + (stop.dur_ns ?? 0)), y: row.top + 3 + BAR * (stop.depth + 0.5) },
    ]
  })
  context.strokeStyle = colour("ink")
  context.fillStyle = colour("ink")
  for (const one of spots) {
    if (one.stop.kind !== "step") continue
    context.lineWidth = 1.5
    context.setLineDash([4, 3])
    context.strokeRect(one.left, one.row.top + 1, Math.max(one.right - one.left, 2), one.row.height - 1)
    context.setLineDash([])
  }
  context.lineWidth = 1.6
  for (const [at, to] of spots.entries()) {
    const from = spots[at - 1]
    if (!from) continue
    if (from.row === to.row) continue
    arrow(context, from.right, from.y, to.stop.kind === "batch" ? to.right : to.left, to.y)
  }
}

function arrow(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  const bend = Math.max(Math.abs(x2 - x1) / 2, 18)
  context.beginPath()
  context.moveTo(x1, y1)
  context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 2, y2)
  context.stroke()
  context.beginPath()
  context.moveTo(x2, y2)
  context.lineTo(x2 - 7, y2 - 4)
  context.lineTo(x2 - 7, y2 + 4)
  context.fill()
}

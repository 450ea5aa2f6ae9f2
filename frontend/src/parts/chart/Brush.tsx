// The whole axis with a window on it: drag the window, its edges, or a new one; or use the arrow keys.
import { useRef, useState } from "preact/hooks"
import type { Values } from "./shape"
import { inside, panned, type Range } from "./window"
import "./brush.css"

interface Props {
  x: number[]
  y: Values
  whole: Range
  range: Range
  format: (x: number) => string
  onChange: (range: Range | null) => void
}

type Grip = "from" | "to" | "move" | "new"
const EDGE = 8 // px beside an edge that take hold of it

export function Brush({ x, y, whole, range, format, onChange }: Props) {
  const strip = useRef<HTMLDivElement>(null)
  const [dragged, setDragged] = useState<Range | null>(null)
  const held = useRef<{ grip: Grip; at: number; range: Range } | null>(null)
  const shown = dragged ?? range
  const width = whole[1] - whole[0] || 1
  const share = (value: number) => (100 * (value - whole[0])) / width

  const where = (event: PointerEvent) => {
    const box = (strip.current as HTMLElement).getBoundingClientRect()
    return { value: whole[0] + ((event.clientX - box.left) / box.width) * width, px: width / box.width }
  }
  const down = (event: PointerEvent) => {
    const { value, px } = where(event)
    const zoomed = range[0] > whole[0] || range[1] < whole[1]
    const near = (edge: number) => Math.abs(value - edge) < EDGE * px
    const inner = zoomed && value > range[0] && value < range[1]
    const grip: Grip = near(range[0]) ? "from" : near(range[1]) ? "to" : inner ? "move" : "new"
    held.current = { grip, at: value, range }
    ;(event.currentTarget as HTMLElement).setPointerCapture(event.pointerId)
    event.preventDefault()
  }
  const move = (event: PointerEvent) => {
    const hold = held.current
    if (!hold) return
    const { value } = where(event)
    const next: Record<Grip, Range | null> = {
      from: [Math.min(value, hold.range[1]), Math.max(value, hold.range[1])],
      to: [Math.min(value, hold.range[0]), Math.max(value, hold.range[0])],
      move: panned(hold.range, whole, (value - hold.at) / (hold.range[1] - hold.range[0] || 1)),
      new: [hold.at, value],
    }
    const wanted = next[hold.grip]
    setDragged(wanted ? (inside(wanted, whole) ?? whole) : whole)
  }
  const up = () => {
    held.current = null
    if (dragged) onChange(inside(dragged, whole))
    setDragged(null)
  }
  const pressed = (edge: 0 | 1) => (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key]
    if (by === undefined) return
    event.preventDefault()
    const step = Math.max(1, Math.round(width / 100)) * by
    onChange(inside(edge === 0 ? [range[0] + step, range[1]] : [range[0], range[1] + step], whole))
  }
  const handle = (edge: 0 | 1, label: string) => (
    <div
      class="handle"
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={whole[0]}
      aria-valuemax={whole[1]}
      aria-valuenow={shown[edge]}
      aria-valuetext={format(shown[edge])}
      style={{ left: `${share(shown[edge])}%` }}
      onKeyDown={pressed(edge)}
    />
  )
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be laid out like this
    <div
      class="brush"
      role="group"
      aria-label="Range of the charts"
      ref={strip}
      onPointerDown={down}
      onPointerMove={move}
      onPointerUp={up}
      onPointerCancel={up}
      onDblClick={() => onChange(null)}
    >
      <svg viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true">
        <path d={outline(x, y, whole)} />
      </svg>
      <div class="shade" style={{ left: 0, width: `${share(shown[0])}%` }} />
      <div class="shade" style={{ left: `${share(shown[1])}%`, right: 0 }} />
      {handle(0, "Start of the range")}
      {handle(1, "End of the range")}
    </div>
  )
}

/** The highest value of each place, as an area; heights by their logarithm, so that one spike leaves the rest visible. */
function outline(x: number[], y: Values, whole: Range): string {
  const known = y.filter((value): value is number => value !== null && value > 0).map(Math.log)
  if (!known.length) return ""
  const low = known.reduce((a, b) => Math.min(a, b))
  const span = known.reduce((a, b) => Math.max(a, b)) - low || 1
  const width = whole[1] - whole[0] || 1
  const points = x.flatMap((at, place) => {
    const value = y[place]
    if (value === null || value === undefined || value <= 0) return []
    return [
      `${((1000 * (at - whole[0])) / width).toFixed(1)},${(94 - (70 * (Math.log(value) - low)) / span).toFixed(1)}`,
    ]
  })
  return `M0,100 L${points.join(" ")} L1000,100 Z`
}

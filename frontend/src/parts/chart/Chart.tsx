// A chart over the axis of a run: lines or a stack, drawn by uPlot. Charts in one `Together` point at the same place.
import { effect } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useContext, useEffect, useMemo, useRef } from "preact/hooks"
import uPlot from "uplot"
import { colour, theme } from "../../app/theme"
import { Together } from "./cursor"
import { nearest, type Values } from "./shape"
import "uplot/dist/uPlot.min.css"
import "./chart.css"

export interface Trace {
  name: string
  /** What the legend says: of a stack the part, not the sum. */
  values: Values
  /** What is drawn, if it differs. */
  drawn?: Values
  colour: string
  fill?: string
  width?: number
  /** Filled down to the trace before it. */
  downToLast?: boolean
  /** Drawn, but not in the legend. */
  silent?: boolean
}

export interface ChartProps {
  title: string
  x: number[]
  traces: Trace[]
  /** From where to where the axis is shown. */
  range: readonly [number, number]
  format: (value: number) => string
  formatX: (value: number) => string
  ticks: number[]
  log?: boolean
  /** Nothing above this is drawn. */
  limit?: number | null
  fromZero?: boolean
  stepped?: boolean
  height?: number
  onZoom: (from: number, to: number) => void
  onPick?: (x: number) => void
  notes?: ComponentChildren
}

const GUTTER = 66 // px for the labels of the y axis: the same for all, so that the charts stand below each other
const CLICK = 4 // px: less is a click

export function Chart(props: ChartProps) {
  const { traces, x, height = 130 } = props
  const together = useContext(Together)
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const now = useRef(props)
  now.current = props
  const look = theme.value
  // What needs a new drawing board; everything else is data.
  const kind = JSON.stringify([
    look,
    props.log,
    props.stepped,
    height,
    traces.map(one => [one.name, one.colour, one.fill, one.downToLast]),
  ])
  const data = useMemo(() => [x, ...traces.map(one => one.drawn ?? one.values)] as uPlot.AlignedData, [x, traces])
  const latest = useRef(data)
  latest.current = data

  // biome-ignore lint/correctness/useExhaustiveDependencies: `kind` says when the board has to be made anew
  useEffect(() => {
    const box = place.current as HTMLDivElement
    const board = new uPlot(
      options(now, box.clientWidth, height, at => pointed(together, at)),
      latest.current,
      box,
    )
    plot.current = board
    const stop = effect(() => point(board, together.at.value))
    const resized = new ResizeObserver(() => board.setSize({ width: box.clientWidth, height }))
    resized.observe(box)
    return () => {
      resized.disconnect()
      stop()
      board.destroy()
      plot.current = null
    }
  }, [kind])

  const [from, to] = props.range
  const { limit } = props
  // biome-ignore lint/correctness/useExhaustiveDependencies: the limit moves the y axis
  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData(data, false)
      plot.current?.setScale("x", { min: from, max: Math.max(to, from + 1e-9) })
      plot.current?.redraw(false, true)
    })
    if (plot.current) point(plot.current, together.at.peek())
  }, [data, from, to, limit])

  return (
    <figure class="chart">
      <figcaption>
        <h3>{props.title}</h3>
        <Legend {...props} />
      </figcaption>
      <div ref={place} class="plot" style={{ height: `${height}px` }} role="img" aria-label={summary(props)} />
      {props.notes}
    </figure>
  )
}

function Legend({ traces, x, format }: ChartProps) {
  const { at } = useContext(Together)
  const value = at.value
  const place = value === null ? -1 : nearest(x, value)
  const alone = traces.filter(one => !one.silent).length === 1 // the title says what it is
  if (alone && place < 0) return null
  return (
    <ul class="legend">
      {traces.map(
        one =>
          !one.silent && (
            <li key={one.name}>
              <i style={{ background: one.fill ?? one.colour }} aria-hidden="true" />
              {alone ? "" : one.name}
              {place >= 0 && <b>{text(one.values[place], format)}</b>}
            </li>
          ),
      )}
    </ul>
  )
}

const text = (value: number | null | undefined, format: (value: number) => string) =>
  value === null || value === undefined ? "n/a" : format(value)

/** What a chart shows, for those who cannot see it. */
function summary({ title, x, traces, format, formatX }: ChartProps): string {
  const parts = traces
    .filter(one => !one.silent)
    .slice(0, 6)
    .map(one => {
      const known = one.values.filter((value): value is number => value !== null)
      if (!known.length) return `${one.name}: nothing`
      const low = known.reduce((a, b) => Math.min(a, b))
      const high = known.reduce((a, b) => Math.max(a, b))
      return `${one.name}: ${format(low)} to ${format(high)}, last ${format(known.at(-1) as number)}`
    })
  const span = x.length ? ` from ${formatX(x[0] as number)} to ${formatX(x.at(-1) as number)}` : ""
  return `${title}${span}. ${parts.join("; ")}.`
}

let moving = false

/** The mouse is over a chart: all others follow. */
function pointed(together: { at: { value: number | null } }, at: number | null): void {
  if (!moving) together.at.value = at
}

/** Move the cross hair of a chart to a place. */
function point(board: uPlot, at: number | null): void {
  moving = true
  const left = at === null ? -10 : board.valToPos(at, "x")
  board.setCursor({ left, top: at === null ? -10 : (board.cursor.top ?? 0) >= 0 ? (board.cursor.top ?? 10) : 10 })
  moving = false
}

function options(
  now: { current: ChartProps },
  width: number,
  height: number,
  onPoint: (at: number | null) => void,
): uPlot.Options {
  const { log, stepped, traces } = now.current
  const axis = { stroke: colour("faint"), font: "11.5px system-ui, sans-serif", ticks: { show: false } }
  const grid = { stroke: colour("line"), width: 1 }
  const steps = uPlot.paths.stepped?.({ align: 1 })
  return {
    width,
    height,
    legend: { show: false },
    padding: [6, 8, 0, 0],
    cursor: {
      drag: { x: true, y: false, setScale: false, dist: CLICK },
      y: false,
      points: { size: 5 },
      focus: { prox: -1 },
    },
    scales: {
      x: {
        time: false,
        range: () => [now.current.range[0], Math.max(now.current.range[1], now.current.range[0] + 1e-9)],
      },
      y: { distr: log ? 3 : 1, range: (_, low, high) => extent(now.current, low, high) },
    },
    axes: [
      {
        ...axis,
        grid: { ...grid, show: false },
        size: 24,
        gap: 5,
        space: 90,
        incrs: now.current.ticks,
        values: (_, values) => values.map(value => now.current.formatX(value)),
      },
      {
        ...axis,
        grid,
        size: GUTTER,
        gap: 6,
        space: 26,
        values: (_, values) => values.map(value => (value === null ? "" : now.current.format(value))),
      },
    ],
    series: [
      {},
      ...traces.map(one => ({
        label: one.name,
        stroke: one.colour,
        width: one.width ?? 1.5,
        ...(one.fill && !one.downToLast ? { fill: one.fill } : {}),
        ...(stepped && steps ? { paths: steps } : {}),
        points: { show: false },
        spanGaps: !stepped,
      })),
    ],
    bands: traces.flatMap((one, at) =>
      one.downToLast ? [{ series: [at + 1, at] as [number, number], fill: one.fill ?? one.colour }] : [],
    ),
    hooks: {
      setCursor: [
        board => {
          const at = board.cursor.idx
          const left = board.cursor.left ?? -1
          onPoint(left < 0 || at === null || at === undefined ? null : (board.data[0][at] ?? null))
        },
      ],
      setSelect: [
        board => {
          if (board.select.width < CLICK) return
          const from = board.posToVal(board.select.left, "x")
          const to = board.posToVal(board.select.left + board.select.width, "x")
          board.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          now.current.onZoom(from, to)
        },
      ],
      ready: [
        board => {
          let began = 0
          board.over.addEventListener("mousedown", event => {
            began = event.clientX
          })
          board.over.addEventListener("click", event => {
            const at = board.cursor.idx
            if (Math.abs(event.clientX - began) < CLICK && at !== null && at !== undefined)
              now.current.onPick?.(board.data[0][at] as number)
          })
        },
      ],
    },
  }
}

const LEAST = 1e-12

/** From where to where the y axis reaches. */
function extent({ log, limit, fromZero }: ChartProps, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return log ? [1, 10] : [0, 1]
  if (log) {
    const floor = 10 ** Math.floor(Math.log10(Math.max(low, LEAST)))
    return [floor, Math.max(10 ** Math.ceil(Math.log10(Math.max(high, LEAST))), floor * 10)]
  }
  if (limit !== null && limit !== undefined) return [fromZero ? 0 : Math.min(low, limit), limit]
  if (fromZero && low >= 0) return [0, high > 0 ? high * 1.06 : 1]
  const room = (high - low || Math.abs(high) || 1) * 0.08
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room]
}

// The charts of a run: one axis, one window on it, one place that is pointed at, for all of them. They know nothing of pages, so
// that the HTML report has them too.
import type { ComponentChildren, FunctionComponent } from "preact"
import { createContext } from "preact"
import { useContext, useMemo } from "preact/hooks"
import type { Line } from "../../api/types"
import { colour, lineColour, phaseColour, theme } from "../../app/theme"
import { count, duration, plural } from "../../app/units"
import { Brush } from "../chart/Brush"
import { Chart, type Trace } from "../chart/Chart"
import type { Shared } from "../chart/cursor"
import { type Cut, cut, nearest, positive, STEP_TICKS, TIME_TICKS } from "../chart/shape"
import { inside, panned, type Range, zoomed } from "../chart/window"
import { Choice } from "../Small"
import { type Axis, type Picture, pictures, type Stack, stack } from "./lines"
import "./runcharts.css"

export interface View {
  axis: Axis
  log: boolean
  full: boolean // nothing is cut off
  rank: number | null
  range: Range | null
  at: number | null
}

/** What the address says about the charts. */
export function viewOf(query: Record<string, string>): View {
  const number = (text: string | undefined) => (text !== undefined && /^-?\d+$/.test(text) ? Number(text) : null)
  const from = number(query.from)
  const to = number(query.to)
  return {
    axis: query.axis === "time" ? "time" : "step",
    log: query.log === "1",
    full: query.full === "1",
    rank: number(query.rank),
    range: from !== null && to !== null && from < to ? [from, to] : null,
    at: number(query.at),
  }
}

export type Change = (changed: Record<string, string | number | null>, options?: { replace?: boolean }) => void

/** Where the charts are: what changes the view, and what a step looks like there. */
export const Surroundings = createContext<{
  change: Change
  Step: FunctionComponent<{ step: number; rank: number | null; children: ComponentChildren }>
}>({ change: () => {}, Step: ({ children }) => <>{children}</> })

interface Props {
  ranks: number[]
  view: View
  whole: Range
  steps: Line[]
  samples: Line[]
  outline: Line | undefined
  together: Shared
}

export function RunCharts({ ranks, view, whole, steps, samples, outline, together }: Props) {
  const { change } = useContext(Surroundings)
  const range = view.range ?? whole
  const look = theme.value
  const piled = useMemo(() => stack(steps), [steps])
  const others = useMemo(() => pictures(steps, samples), [steps, samples])
  const zoom = (wanted: Range | null) => change({ from: wanted?.[0] ?? null, to: wanted?.[1] ?? null })
  const formatX = view.axis === "step" ? (value: number) => count(Math.round(value)) : duration
  const basic = {
    range,
    formatX,
    ticks: view.axis === "step" ? STEP_TICKS : TIME_TICKS,
    log: view.log,
    onZoom: (from: number, to: number) => zoom(inside([from, to], whole)),
    onPick: (at: number) => change({ at: Math.round(at) }, { replace: true }),
  }
  return (
    <>
      <Tools ranks={ranks} view={view} whole={whole} range={range} formatX={formatX} zoom={zoom}>
        <Readout axis={view.axis} step={piled?.step} together={together} formatX={formatX} />
      </Tools>
      <Brush
        x={outline?.x ?? []}
        y={outline?.max ?? []}
        whole={whole}
        range={range}
        format={value => (view.axis === "step" ? `step ${formatX(value)}` : formatX(value))}
        onChange={zoom}
      />
      {piled && <StackChart key={look} piled={piled} view={view} basic={basic} />}
      {others.map(picture => (
        <LineChart key={`${picture.key}-${look}`} picture={picture} view={view} basic={basic} />
      ))}
    </>
  )
}

interface Basic {
  range: Range
  formatX: (value: number) => string
  ticks: number[]
  log: boolean
  onZoom: (from: number, to: number) => void
  onPick: (at: number) => void
}

function StackChart({ piled, view, basic }: { piled: Stack; view: View; basic: Basic }) {
  const { change, Step } = useContext(Surroundings)
  const { step } = piled
  const tops = step?.max ?? (piled.phases.at(-1)?.top as (number | null)[])
  const clip = useMemo<Cut>(() => cut(tops), [tops])
  const limit = view.full || view.log ? null : clip.limit
  const traces = useMemo<Trace[]>(() => {
    if (view.log && step)
      return band(step.y, step.min, step.max, colour("p50"), step.estimated ? "median step, estimated" : "median step")
    const phases = piled.phases.map((one, at) => ({
      name: one.name,
      values: one.values,
      drawn: one.top,
      colour: phaseColour(one.phase),
      fill: phaseColour(one.phase),
      width: 0,
      downToLast: at > 0,
    }))
    if (!piled.longest) return phases
    return [...phases, { name: "longest step", values: piled.longest, colour: colour("ink"), width: 1 }]
  }, [piled, step, view.log])
  const worst = step?.slowest?.[clip.at]
  return (
    <Chart
      {...basic}
      title={view.log ? "Step time" : "Step time by phase"}
      x={piled.x}
      traces={traces}
      format={duration}
      limit={limit}
      fromZero
      stepped={!view.log}
      height={190}
      notes={
        limit !== null && (
          <p class="note">
            {plural(clip.count, "point")} above {duration(limit)} {clip.count === 1 ? "is" : "are"} cut off; the highest
            is {duration(clip.highest)}
            {worst && worst[0] !== null && (
              <>
                {" "}
                at{" "}
                <Step step={worst[0]} rank={worst[1]}>
                  step {count(worst[0])}
                </Step>
              </>
            )}
            .{" "}
            <button type="button" class="link" onClick={() => change({ full: 1 })}>
              Show all
            </button>
          </p>
        )
      }
    />
  )
}

/** A line and the range between its extremes. */
function band(
  y: (number | null)[],
  low: (number | null)[],
  high: (number | null)[],
  stroke: string,
  name: string,
): Trace[] {
  return [
    { name: "least", values: low, colour: "transparent", width: 0, silent: true },
    {
      name: "range",
      values: high,
      colour: "transparent",
      width: 0,
      fill: colour("band"),
      downToLast: true,
      silent: true,
    },
    { name, values: y, colour: stroke },
  ]
}

function LineChart({ picture, view, basic }: { picture: Picture; view: View; basic: Basic }) {
  const banded = picture.lines.length === 3 && picture.lines[1]?.name === "least"
  const lines = useMemo(
    () =>
      view.log
        ? picture.lines.map(line => ({ ...line, ...positive(line.values) }))
        : picture.lines.map(line => ({ ...line, hidden: 0 })),
    [picture, view.log],
  )
  const hidden = lines.reduce((sum, line) => sum + line.hidden, 0)
  const traces = useMemo<Trace[]>(() => {
    const [first, low, high] = lines
    if (banded && first && low && high) return band(first.values, low.values, high.values, lineColour(0), picture.key)
    return lines.map((line, at) => ({ name: line.name || picture.key, values: line.values, colour: lineColour(at) }))
  }, [lines, banded, picture.key])
  return (
    <Chart
      {...basic}
      title={picture.title}
      x={picture.x}
      traces={traces}
      format={picture.format}
      fromZero={picture.fromZero}
      notes={
        <>
          {picture.clipped > 0 && (
            <p class="note warned">{plural(picture.clipped, "value")} NaN or infinite here, and not drawn.</p>
          )}
          {hidden > 0 && (
            <p class="note">{plural(hidden, "value")} not above zero, and not drawn on a logarithmic axis.</p>
          )}
        </>
      }
    />
  )
}

interface ToolsProps {
  ranks: number[]
  view: View
  whole: Range
  range: Range
  formatX: (value: number) => string
  zoom: (range: Range | null) => void
  children: ComponentChildren
}

function Tools({ ranks, view, whole, range, formatX, zoom, children }: ToolsProps) {
  const { change } = useContext(Surroundings)
  return (
    <div class="charttools">
      <Choice
        label="Axis"
        options={[
          ["step", "Steps"],
          ["time", "Time"],
        ]}
        value={view.axis}
        onChoose={axis => change({ axis: axis === "step" ? null : axis, from: null, to: null, at: null })}
      />
      <Choice
        label="Scale"
        options={[
          ["0", "Linear"],
          ["1", "Log"],
        ]}
        value={view.log ? "1" : "0"}
        onChoose={log => change({ log: log === "1" ? 1 : null })}
      />
      {ranks.length > 1 && (
        <label>
          <span class="hidden">Rank</span>
          <select value={view.rank ?? ""} onChange={event => change({ rank: event.currentTarget.value || null })}>
            <option value="">All ranks</option>
            {ranks.map(rank => (
              <option key={rank} value={rank}>
                Rank {rank}
              </option>
            ))}
          </select>
        </label>
      )}
      {view.full && (
        <button type="button" onClick={() => change({ full: null })}>
          Cut off outliers
        </button>
      )}
      <fieldset class="choice">
        <legend class="hidden">Range</legend>
        <button
          type="button"
          aria-label="Earlier"
          disabled={!view.range}
          onClick={() => zoom(panned(range, whole, -0.5))}
        >
          ←
        </button>
        <button type="button" aria-label="Zoom in" onClick={() => zoom(zoomed(range, whole, 0.5))}>
          +
        </button>
        <button
          type="button"
          aria-label="Zoom out"
          disabled={!view.range}
          onClick={() => zoom(zoomed(range, whole, 2))}
        >
          −
        </button>
        <button type="button" aria-label="Later" disabled={!view.range} onClick={() => zoom(panned(range, whole, 0.5))}>
          →
        </button>
      </fieldset>
      {view.range && (
        <button type="button" onClick={() => zoom(null)}>
          Whole run
        </button>
      )}
      <span class="soft small">
        {view.axis === "step" ? "steps " : ""}
        {formatX(range[0])} to {formatX(range[1])}
      </span>
      {children}
    </div>
  )
}

interface ReadoutProps {
  axis: Axis
  step: Line | undefined
  together: Shared
  formatX: (value: number) => string
}

/** What is pointed at, with a link to its step; of a point that is several steps, to the longest. */
function Readout({ axis, step, together, formatX }: ReadoutProps) {
  const { Step } = useContext(Surroundings)
  const at = together.at.value
  const found = at === null || !step ? -1 : nearest(step.x, at)
  const place = step?.x[found]
  const slowest = step?.slowest?.[found]
  if (at === null || place === undefined || !slowest || slowest[0] === null) {
    return <span class="readout soft small">Hover over a chart for its numbers, click to keep them, drag to zoom.</span>
  }
  const until = step?.x[found + 1]
  const several = axis === "step" && until !== undefined && until - place > 1
  return (
    <span class="readout small">
      {several
        ? `steps ${formatX(place)} to ${formatX(until - 1)}, longest: `
        : axis === "time"
          ? `${formatX(place)}: `
          : ""}
      <Step step={slowest[0]} rank={slowest[1]}>
        step {count(slowest[0])}
        {slowest[1] === null ? "" : ` of rank ${slowest[1]}`}
      </Step>{" "}
      {duration(step?.max[found])}
    </span>
  )
}

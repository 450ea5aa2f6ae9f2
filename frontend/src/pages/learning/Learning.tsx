// How the model learned: metrics of evaluations, and numbers of layers and batches in sampled steps, over time.
import { useMemo } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import type { Drawing, Learning as Found, Head } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { lineColour, theme } from "../../app/theme"
import { brief, count, duration, share } from "../../app/units"
import { Chart, type Trace } from "../../parts/chart/Chart"
import { shared, Together } from "../../parts/chart/cursor"
import { TIME_TICKS } from "../../parts/chart/shape"
import { inside, type Range } from "../../parts/chart/window"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { viewOf } from "../../parts/runcharts/RunCharts"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import "../../parts/runcharts/runcharts.css"
import { merged } from "./merge"
import "./learning.css"

export default function Learning({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, "/learning")
  const found = useSteadyData<Found>(path)
  return (
    <RunPage run={run} title="Learning">
      {head => (
        <Show of={found} path={path} what="Reading metrics and sampled steps">
          {data => (data.metrics.length || data.sampled.length ? <Whole head={head} data={data} /> : <Nothing />)}
        </Show>
      )}
    </RunPage>
  )
}

function Nothing() {
  return (
    <Empty title="Nothing to show yet">
      Log metrics with <code>sonde.log(accuracy=0.9)</code>. Record gradients, activations and inputs of some steps with{" "}
      <code>sonde run --learning train.py</code>.
    </Empty>
  )
}

function Whole({ head, data }: { head: Head; data: Found }) {
  const together = useMemo(shared, [])
  const whole = useMemo<Range>(() => extent([...data.evaluation, ...data.sampled]), [data])
  const range = viewOf(place.value.query).range ?? whole
  const zoomed = range[0] !== whole[0] || range[1] !== whole[1]
  const look = theme.value
  const draw = (one: Drawing) => <Lines key={`${one.title}-${look}`} one={one} range={range} whole={whole} />
  return (
    <Together.Provider value={together}>
      <h1>Learning</h1>
      <p class="told">
        Of the first rank, over the time since the start. Drag to zoom.{" "}
        {zoomed && (
          <button type="button" class="link" onClick={() => setQuery({ from: null, to: null })}>
            Whole run
          </button>
        )}
      </p>
      {data.metrics.length > 0 && (
        <Part title="Evaluation" told="Losses and metrics as they were logged.">
          <Table caption="Metrics" columns={columns(head)} rows={data.metrics} keyOf={one => one.name} />
          <div class="drawings">{data.evaluation.map(draw)}</div>
        </Part>
      )}
      {data.sampled.length > 0 && (
        <Part
          title="Sampled steps"
          told="Layers and fields with the highest values."
          more={head.has.layers ? <Go to={to.layers(head.id)}>All layers</Go> : null}
        >
          <div class="drawings">{data.sampled.map(draw)}</div>
        </Part>
      )}
    </Together.Provider>
  )
}

function extent(drawings: Drawing[]): Range {
  const times = drawings.flatMap(one => one.lines.flatMap(line => [line.x[0] ?? 0, line.x.at(-1) ?? 0]))
  const first = times.reduce((least, time) => Math.min(least, time), Number.POSITIVE_INFINITY)
  const last = times.reduce((most, time) => Math.max(most, time), 0)
  return first < last ? [first, last] : [0, Math.max(last, 1)]
}

function Lines({ one, range, whole }: { one: Drawing; range: Range; whole: Range }) {
  const { x, y } = useMemo(() => merged(one.lines), [one])
  const traces = useMemo<Trace[]>(
    () => one.lines.map((line, at) => ({ name: line.name, values: y[at] ?? [], colour: lineColour(at) })),
    [one, y],
  )
  const part = one.title.startsWith("Share")
  const only = one.lines.length === 1 ? one.lines[0]?.name : undefined // a chart of one line has no legend
  return (
    <Chart
      title={only && only !== one.title ? `${one.title}: ${only}` : one.title}
      x={x}
      traces={traces}
      range={range}
      format={value => (part ? share(value) : brief(value))}
      formatX={duration}
      ticks={TIME_TICKS}
      height={150}
      onZoom={(from, until) => {
        const next = inside([from, until], whole)
        setQuery({ from: next && Math.round(next[0]), to: next && Math.round(next[1]) })
      }}
    />
  )
}

function columns(head: Head): Column<Found["metrics"][number]>[] {
  const at = (step: number | null) =>
    step === null ? "" : <Go to={to.step(head.id, head.ranks[0]?.rank ?? null, step)}>step {count(step)}</Go>
  return [
    { key: "name", title: "metric", text: true, cell: one => one.name },
    { key: "source", title: "logged by", text: true, wide: true, cell: one => one.source },
    { key: "first", title: "first", cell: one => brief(one.first) },
    { key: "last", title: "last", cell: one => brief(one.last) },
    { key: "low", title: "lowest", cell: one => brief(one.low) },
    { key: "lowstep", title: "at", text: true, cell: one => at(one.low_step) },
    { key: "high", title: "highest", cell: one => brief(one.high) },
    { key: "highstep", title: "at", text: true, cell: one => at(one.high_step) },
    { key: "count", title: "times", wide: true, cell: one => count(one.count) },
  ]
}

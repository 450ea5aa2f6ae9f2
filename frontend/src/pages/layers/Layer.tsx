// One layer over the steps: its time, its memory, and how it learned.
import { useMemo } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import type { Head, WholeLayer } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { go, place, setQuery } from "../../app/router"
import { colour, lineColour, phaseColour, theme } from "../../app/theme"
import { brief, count, duration, MISSING, numeric, plural, share, size } from "../../app/units"
import { Brush } from "../../parts/chart/Brush"
import { Chart, type Trace } from "../../parts/chart/Chart"
import { shared, Together } from "../../parts/chart/cursor"
import { STEP_TICKS, stacked } from "../../parts/chart/shape"
import { inside, type Range } from "../../parts/chart/window"
import { about, RunPage } from "../../parts/RunPage"
import { Facts } from "../../parts/Small"
import { Show } from "../../parts/States"
import "../../parts/runcharts/runcharts.css"

export default function Layer({ params }: PageProps) {
  const run = params.run as string
  const name = params.layer as string
  const path = about(run, `/layers/${encodeURIComponent(name)}`)
  const found = useSteadyData<WholeLayer>(path)
  return (
    <RunPage run={run} title={name} crumbs={[{ text: "Layers", to: to.layers(run) }]}>
      {head => (
        <Show of={found} path={path} what="Reading the layer">
          {data => <Whole head={head} data={data} name={name} />}
        </Show>
      )}
    </RunPage>
  )
}

function Whole({ head, data, name }: { head: Head; data: WholeLayer; name: string }) {
  const { layer } = data
  return (
    <>
      <div class="head">
        <h1>{name}</h1>
        {layer.type && <span class="soft">{layer.type}</span>}
      </div>
      <Facts
        of={{
          "of the model": layer.compiled ? "compiled: not seen" : share(layer.share),
          forward: duration(layer.forward_ns),
          backward: duration(layer.backward_ns),
          activations: size(layer.activation_bytes),
          parameters: size(layer.parameter_bytes),
          steps: count(layer.steps),
          calls: count(layer.calls),
        }}
      />
      {data.steps.length > 1 ? (
        <Charts key={theme.value} head={head} data={data} />
      ) : (
        <p class="soft">There are too few steps to draw.</p>
      )}
    </>
  )
}

function Charts({ head, data }: { head: Head; data: WholeLayer }) {
  const { query } = place.value
  const together = useMemo(shared, [])
  const { steps, width } = data
  const whole: Range = [steps[0] as number, steps.at(-1) as number]
  const range = query.from && query.to ? ([Number(query.from), Number(query.to)] as const) : whole
  const zoom = (wanted: Range | null) => setQuery({ from: wanted?.[0] ?? null, to: wanted?.[1] ?? null })
  const basic = {
    range,
    formatX: (value: number) => count(Math.round(value)),
    ticks: STEP_TICKS,
    onZoom: (from: number, until: number) => zoom(inside([from, until], whole)),
    onPick: (step: number) => go(to.step(head.id, head.ranks[0]?.rank ?? null, step)),
  }
  const times = useMemo<Trace[]>(() => {
    const tops = stacked([data.forward_ns, data.backward_ns])
    return [
      { name: "forward", values: data.forward_ns, drawn: tops[0] ?? [], colour: phaseColour("forward") },
      { name: "backward", values: data.backward_ns, drawn: tops[1] ?? [], colour: phaseColour("backward") },
    ].map((one, at) => ({ ...one, fill: one.colour, width: 0, downToLast: at > 0 }))
  }, [data])
  const longest = useMemo<Trace[]>(
    () => [{ name: "longest", values: data.longest_ns, colour: colour("ink"), width: 1 }],
    [data],
  )
  const memory = useMemo<Trace[]>(
    () => [{ name: "activations", values: data.activation_bytes, colour: lineColour(4) }],
    [data],
  )
  const summed = width > 1 ? `, means of ${plural(width, "step")}` : ""
  return (
    <section class="charts" aria-label="Charts">
      <Together.Provider value={together}>
        <p class="soft small">Drag to zoom; click for the step.</p>
        <Brush
          x={steps}
          y={data.longest_ns}
          whole={whole}
          range={range}
          format={value => `step ${count(Math.round(value))}`}
          onChange={zoom}
        />
        <Chart
          {...basic}
          title={`Time of a step${summed}`}
          x={steps}
          traces={times}
          format={duration}
          fromZero
          stepped
          height={180}
        />
        {width > 1 && (
          <Chart {...basic} title="Longest of each stretch" x={steps} traces={longest} format={duration} fromZero />
        )}
        {data.activation_bytes.some(value => value !== null) && (
          <Chart {...basic} title="Activations" x={steps} traces={memory} format={size} fromZero />
        )}
        {data.learning.map((one, at) => (
          <Sampled key={one.name} one={one} place={at} basic={basic} />
        ))}
      </Together.Provider>
    </section>
  )
}

type Basic = Pick<Parameters<typeof Chart>[0], "range" | "formatX" | "ticks" | "onZoom" | "onPick">

function Sampled({ one, place: at, basic }: { one: WholeLayer["learning"][number]; place: number; basic: Basic }) {
  const values = useMemo(() => one.y.map(value => (value === null ? null : numeric(value))), [one])
  const finite = useMemo(() => values.map(value => (value !== null && Number.isFinite(value) ? value : null)), [values])
  const bad = values.filter(value => value !== null && !Number.isFinite(value)).length
  const traces = useMemo<Trace[]>(() => [{ name: one.name, values: finite, colour: lineColour(at) }], [one, finite, at])
  const part = /zeros|dead|saturated|infinite/.test(one.name)
  return (
    <Chart
      {...basic}
      title={one.name.charAt(0).toUpperCase() + one.name.slice(1)}
      x={one.x}
      traces={traces}
      format={value => (part ? share(value) : (brief(value) ?? MISSING))}
      notes={bad > 0 && <p class="note warned">{plural(bad, "value")} NaN or infinite here, and not drawn.</p>}
    />
  )
}

// Where the threads that train were seen: a flame graph of sampled stacks, and the lines that took the most time of a phase.
import { useMemo } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import type { Call, Head, SampledLine } from "../../api/types"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { PHASE_ORDER } from "../../app/theme"
import { count, duration, MISSING, phaseName, share } from "../../app/units"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Meter } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { boxes, way } from "./flame"
import "./samples.css"

interface Answer {
  lines: SampledLine[]
  flame: Call
}

export default function Samples({ params }: PageProps) {
  return (
    <RunPage run={params.run as string} title="Samples">
      {head => <Sampled head={head} />}
    </RunPage>
  )
}

function Sampled({ head }: { head: Head }) {
  const { phase } = place.value.query
  const path = about(head.id, "/samples", { phase, limit: 100 })
  const found = useSteadyData<Answer>(path)
  return (
    <Show of={found} path={path} what="Reading the samples">
      {data => (data.flame.dur_ns ? <Whole data={data} phase={phase ?? "residual"} /> : <NoSamples />)}
    </Show>
  )
}

function NoSamples() {
  return (
    <Empty title="No stacks were sampled">
      Record with <code>sonde run --sample train.py</code> to see which lines take time.
    </Empty>
  )
}

/** A phase, or what is none: the name of a call. */
const named = (call: string, level: number) => (level === 0 && PHASE_ORDER.includes(call) ? phaseName(call) : call)

function Whole({ data, phase }: { data: Answer; phase: string }) {
  const { call } = place.value.query
  const calls = useMemo(() => way(data.flame, call), [data, call])
  const top = calls.at(-1) as Call
  const up = call?.includes(".") ? call.slice(0, call.lastIndexOf(".")) : null
  const phases = data.flame.calls.map(one => one.name)
  return (
    <>
      <h1>Samples</h1>
      <p class="told">
        The threads that train, over all ranks: {duration(data.flame.dur_ns)} in sampled stacks. A box is as wide as its
        time, and was called by the one above it.
      </p>
      {calls.length > 1 && (
        <div class="tools">
          <button type="button" onClick={() => setQuery({ call: up })}>
            Up
          </button>
          <button type="button" onClick={() => setQuery({ call: null })}>
            All phases
          </button>
          <span class="soft small">
            {named(top.name, calls.length - 2)}: {duration(top.dur_ns)}, {share(top.dur_ns / data.flame.dur_ns)}
          </span>
        </div>
      )}
      <Flame whole={data.flame} path={calls.length > 1 ? call : undefined} />
      <Part
        title="Lines that took the most time"
        told="Time in libraries counts for the line of the program that calls them. Shares are of the sampled time of the phase."
        more={
          <select
            aria-label="Phase"
            value={phase}
            onChange={event => setQuery({ phase: event.currentTarget.value }, { replace: true })}
          >
            {[...new Set([phase, ...phases])].map(one => (
              <option key={one} value={one}>
                {named(one, 0)}
              </option>
            ))}
          </select>
        }
      >
        {data.lines.length ? (
          <Table
            caption="Lines"
            columns={COLUMNS}
            rows={data.lines}
            keyOf={one => `${one.file}:${one.line}:${one.function}`}
          />
        ) : (
          <p class="soft">No stack was sampled in this phase. Choose another one.</p>
        )}
      </Part>
    </>
  )
}

const COLUMNS: Column<SampledLine>[] = [
  { key: "function", title: "function", text: true, cell: one => one.function },
  {
    key: "line",
    title: "line",
    text: true,
    cell: one => (
      <code class="long">
        {one.file}:{one.line ?? MISSING}
      </code>
    ),
  },
  { key: "meter", title: "", text: true, wide: true, cell: one => <Meter part={one.share} /> },
  { key: "share", title: "share", cell: one => share(one.share) },
  { key: "time", title: "time", cell: one => duration(one.dur_ns) },
  { key: "samples", title: "samples", wide: true, cell: one => count(one.looks) },
]

const LEVEL = 22 // px of a level
const WIDE = 0.03 // of the width: narrower boxes have no room for a name

function Flame({ whole, path }: { whole: Call; path: string | undefined }) {
  const found = useMemo(() => boxes(whole, path), [whole, path])
  const levels = found.reduce((most, one) => Math.max(most, one.level + 1), 0)
  const depth = path ? path.split(".").length - 1 : 0
  return (
    <nav class="flame" aria-label="Flame graph" style={{ height: `${levels * LEVEL}px` }}>
      {found.map(one => {
        const name = named(one.call.name, one.level + depth)
        const told = `${name}: ${duration(one.call.dur_ns)}, ${share(one.call.dur_ns / whole.dur_ns)}`
        return (
          <button
            key={one.path}
            type="button"
            class={PHASE_ORDER.includes(one.phase) ? `fill-${one.phase}` : "fill-residual"}
            style={{ left: `${100 * one.left}%`, width: `${100 * one.width}%`, top: `${one.level * LEVEL}px` }}
            title={told}
            aria-label={`Show ${told}`}
            onClick={() => setQuery({ call: one.path })}
          >
            {one.width > WIDE ? name : ""}
          </button>
        )
      })}
    </nav>
  )
}

// Two runs beside each other: what `sonde compare` says, drawn.
import { useMemo } from "preact/hooks"
import { useData } from "../../api/data"
import type { Comparison, Divergence, FoundProblem, Named, Ratio } from "../../api/types"
import { format, to } from "../../app/address"
import { place, setQuery } from "../../app/router"
import { lineColour, theme } from "../../app/theme"
import { brief, count, duration, MISSING, phaseName, plural, share, size } from "../../app/units"
import { Chart, type Trace } from "../../parts/chart/Chart"
import { STEP_TICKS } from "../../parts/chart/shape"
import { Go } from "../../parts/Go"
import { Linked } from "../../parts/Linked"
import { Page } from "../../parts/Page"
import { Part } from "../../parts/Part"
import { Copy, Kind, Swatch } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { Interval } from "./Interval"
import { differences, ratios } from "./scale"
import "./compare.css"

export default function Compare() {
  const { a, b } = place.value.query
  const path = a && b ? format("/api/compare", { a, b }) : null
  const found = useData<Comparison>(path)
  const names = found.data ? `${found.data.a.name} and ${found.data.b.name}` : "Compare"
  return (
    <Page title={names} here="Compare">
      {path ? (
        <Show of={found} path={path} what="Comparing the runs">
          {data => <Compared data={data} />}
        </Show>
      ) : (
        <Empty title="Select two runs">
          Choose them in <a href={to.runs()}>the list of runs</a>, then Compare the two.
        </Empty>
      )}
    </Page>
  )
}

const GRAVE: Record<string, string> = { faster: "info", same: "info", slower: "critical" }

function Compared({ data }: { data: Comparison }) {
  const { a, b } = data
  return (
    <>
      <div class="head">
        <h1>
          {a.name} and {b.name}
        </h1>
        <button type="button" onClick={() => setQuery({ a: b.id, b: a.id })}>
          Swap A and B
        </button>
      </div>
      <dl class="sides sentence">
        {(["a", "b"] as const).map(side => (
          <div key={side}>
            <dt>
              <i class={`side-${side}`} aria-hidden="true" /> {side.toUpperCase()}
            </dt>
            <dd>
              <Go to={to.run(data[side].id)}>{data[side].id}</Go>
              <span class="soft">
                {" "}
                {data[side].ended}, {plural(data[side].steps, "step")}
                {data[side].verdict && `, ${data[side].verdict}`}
              </span>
            </dd>
          </div>
        ))}
      </dl>
      <section class={`verdict ${GRAVE[data.verdict] ?? "warn"}`} aria-label="Verdict">
        <h2>
          <Kind kind={data.verdict.replace("_", " ").toUpperCase()} severity={GRAVE[data.verdict] ?? "warn"} />
        </h2>
        {data.reasons.map(one => (
          <p key={one} class="why">
            {one}
          </p>
        ))}
        <p class="next">
          <span class="label">Next</span> <Linked text={data.next} whose={{ run: b.id, rank: null, layers: [] }} />
        </p>
      </section>
      <Times data={data} />
      <Distribution data={data} />
      <Phases data={data} />
      <Settings data={data} />
      <Numbers data={data} />
      <Items data={data} />
      <Group title="Ranks" rows={data.ranks} told="The median step of each rank." show={duration} />
      <Group
        title="Layers"
        rows={data.layers}
        told="Forward and backward of a step; the largest change first."
        show={duration}
        link={name => to.layer(b.id, name)}
      />
      <Group title="Memory" rows={data.memory} show={size} />
      <Findings data={data} />
      {data.resume.length > 0 && (
        <Part title="Resume check" told="Effects of each restart.">
          <ul>
            {data.resume
              .flatMap(one => one.text)
              .map(one => (
                <li key={one}>{one}</li>
              ))}
          </ul>
        </Part>
      )}
      {data.notes.length > 0 && (
        <Part title="Notes">
          <ul class="notes">
            {data.notes.map(one => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </Part>
      )}
      <p class="printed">
        <span class="soft">The same in a terminal:</span> <Copy text={`sonde compare ${a.id} ${b.id}`} />
      </p>
    </>
  )
}

// ── ratios ──

interface RatioRow {
  name: string
  ratio: Ratio
  show: (value: number | null) => string
  to?: string
  /** What counts as no difference. */
  margin?: number
}

function Ratios({ caption, rows }: { caption: string; rows: RatioRow[] }) {
  const scale = ratios(rows.flatMap(one => [one.ratio.ratio, one.ratio.low, one.ratio.high]))
  const columns: Column<RatioRow>[] = [
    { key: "name", title: "", text: true, cell: one => <Go to={one.to ?? null}>{one.name}</Go> },
    { key: "a", title: "A", cell: one => one.show(one.ratio.a) },
    { key: "b", title: "B", cell: one => one.show(one.ratio.b) },
    { key: "ratio", title: "B / A", cell: one => one.ratio.ratio?.toFixed(3) ?? MISSING },
    { key: "low", title: "95 % interval", wide: true, cell: one => between(one.ratio) },
    {
      key: "drawn",
      title: "less in B · more in B",
      text: true,
      cell: ({ name, ratio, margin }) =>
        ratio.ratio !== null && (
          <Interval
            scale={scale}
            value={ratio.ratio}
            low={ratio.low}
            high={ratio.high}
            verdict={ratio.verdict}
            {...(margin ? { margin: [1 / (1 + margin), 1 + margin] as const } : {})}
            label={`${name}: B is ${ratio.ratio.toFixed(3)} of A, interval ${between(ratio)}`}
          />
        ),
    },
    { key: "verdict", title: "", text: true, cell: one => <Said verdict={one.ratio.verdict} /> },
  ]
  return <Table caption={caption} columns={columns} rows={rows} keyOf={one => one.name} />
}

function between(one: Ratio): string {
  return one.low === null || one.high === null ? "" : `${one.low.toFixed(3)} to ${one.high.toFixed(3)}`
}

function Said({ verdict }: { verdict: string | null }) {
  return <span class={`said ${verdict ?? ""}`}>{verdict ?? ""}</span>
}

function Times({ data }: { data: Comparison }) {
  const step = data.step_time
  const throughput: RatioRow = {
    name: "samples per second",
    ratio: data.throughput,
    show: value => (value === null ? MISSING : count(Math.round(value))),
  }
  const all: [string, Ratio | null][] = [
    ["median step", step],
    ["fastest tenth", step.p10],
    ["mean step", step.mean],
    ["mean without waits", step.own],
  ]
  const rows = all.flatMap<RatioRow>(([name, ratio]) =>
    ratio && ratio.ratio !== null
      ? [{ name, ratio, show: duration, ...(ratio === step ? { margin: step.margin } : {}) }]
      : [],
  )
  if (throughput.ratio.ratio !== null) rows.push(throughput)
  if (!rows.length) return null
  const sure =
    step.more_steps === null || step.more_steps === 0
      ? ""
      : ` About ${plural(step.more_steps, "step")} of each run would be enough for a sure result.`
  return (
    <Part
      title="Step time"
      told={`All compared statistics, with 95 % confidence intervals. A median within ${share(step.margin)} counts as the same here.${sure}`}
    >
      <Ratios caption="Step time" rows={rows} />
    </Part>
  )
}

function Group(props: {
  title: string
  told?: string
  rows: Named[]
  show: (value: number | null) => string
  link?: (name: string) => string
}) {
  const { title, told, rows, show, link } = props
  if (!rows.length) return null
  return (
    <Part title={title} {...(told ? { told } : {})}>
      <Ratios caption={title} rows={rows.map(one => ({ ...one, show, ...(link ? { to: link(one.name) } : {}) }))} />
    </Part>
  )
}

// ── distributions and phases ──

function Distribution({ data }: { data: Comparison }) {
  const found = data.distribution
  const look = theme.value
  const traces = useMemo<Trace[]>(
    () =>
      (["a", "b"] as const).map((side, at) => ({
        name: side.toUpperCase(),
        values: [...(found?.[side] ?? []), 0],
        colour: lineColour(at),
        fill: `${lineColour(at)}55`,
      })),
    [found],
  )
  const x = useMemo(() => (found?.edges_ns ?? []).map((_, at) => at), [found])
  if (!found) return null
  const edge = (at: number) => duration(found.edges_ns[Math.min(Math.round(at), found.edges_ns.length - 1)])
  return (
    <Part title="Distribution of step times" told="Share of the steps, on a logarithmic axis of time.">
      <Chart
        key={look}
        title="Steps"
        x={x}
        traces={traces}
        range={[0, x.length - 1]}
        format={value => share(value)}
        formatX={edge}
        ticks={STEP_TICKS}
        height={200}
        fromZero
        stepped
        onZoom={() => {}}
      />
    </Part>
  )
}

const signed = (ns: number | null) => (ns === null ? MISSING : `${ns > 0 ? "+" : ""}${duration(ns)}`)

function Phases({ data }: { data: Comparison }) {
  const rows = data.phases.filter(one => one.difference_ns !== null)
  if (!rows.length) return null
  const scale = differences(rows.flatMap(one => [one.difference_ns, one.low_ns, one.high_ns]))
  return (
    <Part title="Phases" told="The mean of a step, and how much more or less B takes, with 95 % confidence intervals.">
      <Table
        caption="Phases"
        rows={rows}
        keyOf={one => one.phase}
        columns={[
          {
            key: "phase",
            title: "phase",
            text: true,
            cell: one => (
              <>
                <Swatch phase={one.phase} />
                {phaseName(one.phase)}
              </>
            ),
          },
          { key: "a", title: "A", cell: one => duration(one.a_ns) },
          { key: "b", title: "B", cell: one => duration(one.b_ns) },
          { key: "difference", title: "B - A", cell: one => signed(one.difference_ns) },
          {
            key: "interval",
            title: "95 % interval",
            wide: true,
            cell: one => `${signed(one.low_ns)} to ${signed(one.high_ns)}`,
          },
          {
            key: "drawn",
            title: "less in B · more in B",
            text: true,
            cell: one => (
              <Interval
                scale={scale}
                value={one.difference_ns as number}
                low={one.low_ns}
                high={one.high_ns}
                verdict={one.verdict}
                label={`${phaseName(one.phase)}: ${signed(one.difference_ns)}, interval ${signed(one.low_ns)} to ${signed(one.high_ns)}`}
                bar
              />
            ),
          },
          { key: "verdict", title: "", text: true, cell: one => <Said verdict={one.verdict} /> },
        ]}
      />
    </Part>
  )
}

// ── what else differs ──

const written = (value: unknown) =>
  value === null || value === undefined ? MISSING : typeof value === "string" ? value : JSON.stringify(value)

function Settings({ data }: { data: Comparison }) {
  return (
    <Part title="Settings that differ" told="Recorded at the start of each run.">
      {data.settings.length ? (
        <Table
          caption="Settings that differ"
          rows={data.settings}
          keyOf={one => one.name}
          columns={[
            { key: "name", title: "", text: true, cell: one => one.name },
            { key: "a", title: "A", text: true, cell: one => <code class="long">{written(one.a)}</code> },
            { key: "b", title: "B", text: true, cell: one => <code class="long">{written(one.b)}</code> },
          ]}
        />
      ) : (
        <p class="soft">No recorded difference.</p>
      )}
    </Part>
  )
}

function Numbers({ data }: { data: Comparison }) {
  const { numbers } = data
  const streams = numbers.streams.filter(one => one.compared > 0)
  const first = numbers.first_difference
  const timed = data.layers.some(one => one.name === first?.layer) // else it has no page
  return (
    <Part title="Numbers" told="Are both the same training?">
      <p class="numberstext">{numbers.text}</p>
      {first && (
        <p>
          The first difference: <StepLinks data={data} one={first} />
          {first.layer && (
            <>
              {" "}
              in <Go to={timed ? to.layer(data.b.id, first.layer) : null}>{first.layer}</Go>
              {first.direction && `, ${first.direction}`}
            </>
          )}
          .
        </p>
      )}
      {streams.length > 0 && (
        <Table
          caption="Compared step by step"
          rows={streams}
          keyOf={one => one.what}
          columns={[
            { key: "what", title: "", text: true, cell: one => one.what },
            { key: "compared", title: "steps compared", cell: one => count(one.compared) },
            {
              key: "first",
              title: "first difference",
              text: true,
              cell: one =>
                one.first_difference ? (
                  <StepLinks data={data} one={one.first_difference} />
                ) : (
                  <span class="said faster">the same throughout</span>
                ),
            },
            { key: "layer", title: "layer", text: true, cell: one => one.first_difference?.layer ?? "" },
            { key: "a", title: "A", cell: one => <Side data={data} side="a" one={one.first_difference} /> },
            { key: "b", title: "B", cell: one => <Side data={data} side="b" one={one.first_difference} /> },
            {
              key: "difference",
              title: "difference",
              cell: one => (one.first_difference?.difference != null ? brief(one.first_difference.difference) : ""),
            },
          ]}
        />
      )}
    </Part>
  )
}

/** The step in both runs; a resumed run may count anew. */
function StepLinks({ data, one }: { data: Comparison; one: Divergence }) {
  return (
    <span class="sentence">
      step {count(one.step)} (
      <Go to={to.step(data.a.id, rankOf(one), one.step)} label={`Step ${one.step} of A`}>
        A
      </Go>
      ,{" "}
      <Go to={to.step(data.b.id, rankOf(one), one.step - data.numbers.shift)} label={`Step ${one.step} of B`}>
        B
      </Go>
      )
    </span>
  )
}

const rankOf = (one: Divergence): number | null => one.rank

function Side({ data, side, one }: { data: Comparison; side: "a" | "b"; one: Divergence | null }) {
  const value = one?.[side]
  if (value === null || value === undefined) return null
  if (one?.what === "batch" && typeof value === "number")
    return <Go to={to.item(data[side].id, { index: value, id: null })}>item {value}</Go>
  return <>{typeof value === "number" ? brief(value) : written(value)}</>
}

function Items({ data }: { data: Comparison }) {
  const { items } = data
  if (!items.a && !items.b) return null
  const name = (item: string) => (/^\d+$/.test(item) ? { index: Number(item), id: null } : { index: null, id: item })
  const cell = (side: "a" | "b", item: string, ns: number | null) =>
    ns === null ? MISSING : <Go to={to.item(data[side].id, name(item))}>{duration(ns)}</Go>
  return (
    <Part title="Items" told={`Different items loaded: ${count(items.a)} in A, ${count(items.b)} in B.`}>
      {items.load.ratio !== null && (
        <Ratios caption="Loading" rows={[{ name: "median item", ratio: items.load, show: duration }]} />
      )}
      {items.rows.length > 0 && (
        <div class="further">
          <Table
            caption="Slowest items"
            narrow
            rows={items.rows}
            keyOf={one => one.item}
            columns={[
              { key: "item", title: "slowest items", text: true, cell: one => `item ${one.item}` },
              { key: "a", title: "A", cell: one => cell("a", one.item, one.a_ns) },
              { key: "b", title: "B", cell: one => cell("b", one.item, one.b_ns) },
            ]}
          />
        </div>
      )}
    </Part>
  )
}

function Findings({ data }: { data: Comparison }) {
  const all: [string, string, FoundProblem[]][] = [
    ["new in B", data.b.id, data.findings.new],
    ["gone in B", data.a.id, data.findings.gone],
    ["in both", data.b.id, data.findings.both],
  ]
  const rows = all.flatMap(([where, run, found]) => found.map(one => ({ where, run, one })))
  if (!rows.length) return null
  return (
    <Part title="Findings">
      <Table
        caption="Findings"
        rows={rows}
        keyOf={({ where, one }) => `${where}-${one.kind}`}
        columns={[
          { key: "where", title: "", text: true, cell: ({ where }) => where },
          {
            key: "kind",
            title: "finding",
            text: true,
            cell: ({ run, one }) => (
              <Go to={to.run(run)}>
                <Kind kind={one.kind} severity={one.severity} />
              </Go>
            ),
          },
          { key: "why", title: "", text: true, cell: ({ one }) => <span class="long">{one.why}</span> },
        ]}
      />
    </Part>
  )
}

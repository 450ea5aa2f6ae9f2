// Where the time goes, who is slow, what is slow, what it needs: the tables of the report, with every name a link.
import type { ComponentChildren } from "preact"
import type { ItemRow, MemoryRow, PhaseRow, RankRow, Report, SlowStep, StepItem } from "../../api/types"
import { to } from "../../app/address"
import { place, setQuery } from "../../app/router"
import { count, duration, MISSING, phaseName, plural, share, size, times } from "../../app/units"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { Meter, PhaseBar, Swatch } from "../../parts/Small"
import { type Column, Table } from "../../parts/Table"

interface Timed {
  key: string
  name: ComponentChildren
  share: number | null
  row: Pick<PhaseRow, "p50_ns" | "p95_ns" | "p99_ns" | "warmup_p50_ns" | "device_ns">
}

export function Phases({ report }: { report: Report }) {
  const { steps, phases } = report
  if (!phases.length) return null
  const mean = steps.mean_ns ?? 0
  const rows: Timed[] = [
    { key: "step", name: <b>step</b>, share: null, row: { ...steps, device_ns: null } },
    ...phases.map(row => ({
      key: row.phase,
      name: (
        <>
          <Swatch phase={row.phase} />
          {phaseName(row.phase)}
        </>
      ),
      share: row.share,
      row,
    })),
  ]
  const columns: Column<Timed>[] = [
    { key: "phase", title: "phase", text: true, cell: one => one.name },
    { key: "share", title: "share", cell: one => (one.key === "step" ? "" : share(one.share)) },
    { key: "p50", title: "p50", cell: one => duration(one.row.p50_ns) },
    { key: "p95", title: "p95", cell: one => duration(one.row.p95_ns) },
    { key: "p99", title: "p99", cell: one => duration(one.row.p99_ns) },
    { key: "warmup", title: "warm-up p50", wide: true, cell: one => duration(one.row.warmup_p50_ns) },
    ...(phases.some(one => one.device_ns !== null)
      ? [{ key: "device", title: "device", cell: (one: Timed) => duration(one.row.device_ns) }]
      : []),
  ]
  const told = `${plural(steps.count, "step")} after warm-up. Shares are of the total time of these steps; percentiles are over the steps that have the phase.`
  return (
    <Part title="Where the time of a step goes" told={told}>
      <div class="wholebar">
        <PhaseBar phases={Object.fromEntries(phases.map(one => [one.phase, (one.share ?? 0) * mean]))} of={mean} />
      </div>
      <Table caption="Phases of a step" columns={columns} rows={rows} keyOf={one => one.key} />
    </Part>
  )
}

const MANY_RANKS = 24
const SHOWN_RANKS = 12 // of many

/** Of many ranks those of the last attempt that are later than the others, unless all are asked for. */
function latest(ranks: RankRow[]): RankRow[] {
  const newest = ranks.reduce((last, one) => Math.max(last, one.attempt ?? 0), 0)
  return ranks
    .filter(one => (one.attempt ?? 0) === newest)
    .sort((a, b) => Number(b.worst) - Number(a.worst) || (b.own_ns ?? 0) - (a.own_ns ?? 0))
    .slice(0, SHOWN_RANKS)
}

const rankName = (one: RankRow) => (one.rank === null ? `process ${one.pid ?? MISSING}` : `rank ${one.rank}`)

export function Ranks({ report, run }: { report: Report; run: string }) {
  const { ranks } = report
  const all = ranks.length <= MANY_RANKS || place.value.query.ranks === "all"
  const shown = all ? ranks : latest(ranks)
  if (ranks.length < 2) return null
  const attempts = new Set(ranks.map(one => one.attempt)).size
  const longest = Math.max(...ranks.map(one => one.p50_ns ?? 0))
  const columns: Column<RankRow>[] = [
    {
      key: "rank",
      title: "rank",
      text: true,
      cell: one => <Go to={one.rank === null ? null : to.run(run, { rank: one.rank })}>{rankName(one)}</Go>,
    },
    ...(attempts > 1 ? [{ key: "attempt", title: "attempt", cell: (one: RankRow) => one.attempt ?? MISSING }] : []),
    { key: "host", title: "host", text: true, wide: true, cell: one => one.host },
    { key: "steps", title: "steps", cell: one => <Go to={to.steps(run, { rank: one.rank })}>{count(one.steps)}</Go> },
    { key: "p50", title: "p50", cell: one => duration(one.p50_ns) },
    { key: "p95", title: "p95", cell: one => duration(one.p95_ns) },
    { key: "p99", title: "p99", cell: one => duration(one.p99_ns) },
    { key: "own", title: "own time", about: "Without communication: who is late", cell: one => duration(one.own_ns) },
    {
      key: "slow",
      title: "of median",
      cell: one => (
        <span class={one.worst ? "worst" : "soft"}>{one.slow === null ? MISSING : `${one.slow.toFixed(2)}x`}</span>
      ),
    },
    {
      key: "phases",
      title: "a median step",
      text: true,
      wide: true,
      cell: one => <PhaseBar phases={one.phases} of={longest} />,
    },
    { key: "state", title: "state", text: true, cell: one => (one.how ? `${one.state} (${one.how})` : one.state) },
  ]
  const told =
    report.run.trainings > 1
      ? "Separate processes without ranks."
      : "Ranks that wait for each other take equally long. Their own time, without communication, shows which one is late."
  return (
    <Part
      title={report.run.trainings > 1 ? "Trainings" : "Ranks"}
      told={
        all
          ? told
          : `${told} Shown: the ${SHOWN_RANKS} with the longest own time${attempts > 1 ? " in the last attempt" : ""}.`
      }
      more={
        ranks.length > MANY_RANKS && (
          <button type="button" class="link" onClick={() => setQuery({ ranks: all ? null : "all" }, { replace: true })}>
            {all ? "Show fewer" : `Show all ${count(ranks.length)}`}
          </button>
        )
      }
    >
      <Table
        caption="Ranks"
        columns={columns}
        rows={shown}
        keyOf={one => `${one.attempt}-${one.rank}-${one.host}-${one.pid}`}
      />
    </Part>
  )
}

export function SlowSteps({ report, run }: { report: Report; run: string }) {
  const { slowest } = report.steps
  if (!slowest.length) return null
  const longest = Math.max(...slowest.map(one => one.dur_ns))
  const columns: Column<SlowStep>[] = [
    {
      key: "step",
      title: "step",
      text: true,
      cell: one => <Go to={to.step(run, one.rank, one.step)}>step {count(one.step)}</Go>,
    },
    ...(report.ranks.length > 1
      ? [{ key: "rank", title: "rank", cell: (one: SlowStep) => (one.rank === null ? MISSING : String(one.rank)) }]
      : []),
    { key: "took", title: "took", cell: one => duration(one.dur_ns) },
    { key: "times", title: "of median", cell: one => <span class="soft">{times(one.times)}</span> },
    {
      key: "mostly",
      title: "longer than the median",
      text: true,
      cell: one =>
        one.phase && (one.extra_ns ?? 0) > 0 ? `${phaseName(one.phase)} +${duration(one.extra_ns)}` : MISSING,
    },
    { key: "items", title: "slowest items", text: true, cell: one => <Items items={one.items} run={run} /> },
    {
      key: "phases",
      title: "phases",
      text: true,
      wide: true,
      cell: one => <PhaseBar phases={one.phases} of={longest} />,
    },
  ]
  return (
    <Part
      title="Slowest steps"
      told="After warm-up, with the slowest items of their batches."
      more={<Go to={to.steps(run, { sort: "dur_ns", order: "desc" })}>All steps</Go>}
    >
      <Table caption="Slowest steps" columns={columns} rows={slowest} keyOf={one => `${one.rank}-${one.step}`} />
    </Part>
  )
}

function Items({ items, run }: { items: StepItem[]; run: string }) {
  if (!items.length) return <span class="soft">{MISSING}</span>
  return (
    <span class="long">
      {items.map((one, at) => (
        <span key={`${one.index}-${one.id}`}>
          {at > 0 && ", "}
          <Go to={to.item(run, one)}>{one.id ?? one.index}</Go> <span class="soft">{duration(one.dur_ns)}</span>
        </span>
      ))}
    </span>
  )
}

export function SlowItems({ report, run }: { report: Report; run: string }) {
  const { items } = report
  if (!items.slowest.length) return null
  const longest = Math.max(...items.slowest.map(one => one.median_ns))
  const columns: Column<ItemRow>[] = [
    {
      key: "item",
      title: "item",
      text: true,
      cell: one => <Go to={to.item(run, one)}>{one.id ?? one.index ?? MISSING}</Go>,
    },
    { key: "meter", title: "", text: true, wide: true, cell: one => <Meter part={one.median_ns / longest} /> },
    { key: "median", title: "median", cell: one => duration(one.median_ns) },
    { key: "max", title: "max", cell: one => duration(one.max_ns) },
    { key: "times", title: "of median", cell: one => times(one.times) },
    { key: "loads", title: "loads", cell: one => count(one.fetched) },
  ]
  const told = `${plural(items.seen, "load")}: median ${duration(items.p50_ns)}, p99 ${duration(items.p99_ns)}, longest ${duration(items.max_ns)}.`
  return (
    <Part title="Slowest items of the dataset" told={told} more={<Go to={to.items(run)}>All items</Go>}>
      <Table caption="Slowest items" columns={columns} rows={items.slowest} keyOf={one => `${one.index}-${one.id}`} />
    </Part>
  )
}

export function Layers({ report, run }: { report: Report; run: string }) {
  const shown = report.layers.slice(0, 8)
  if (!shown.length) return null
  return (
    <Part title="Costliest layers" more={<Go to={to.layers(run)}>All {count(report.layers.length)} layers</Go>}>
      <Table
        caption="Costliest layers"
        rows={shown}
        keyOf={one => one.layer}
        columns={[
          {
            key: "layer",
            title: "layer",
            text: true,
            cell: one => <Go to={to.layer(run, one.layer)}>{one.layer || "(the model)"}</Go>,
          },
          { key: "type", title: "type", text: true, wide: true, cell: one => one.type ?? MISSING },
          { key: "meter", title: "", text: true, wide: true, cell: one => <Meter part={one.share} /> },
          { key: "share", title: "share", cell: one => share(one.share) },
          { key: "forward", title: "forward", cell: one => duration(one.forward_ns) },
          { key: "backward", title: "backward", cell: one => duration(one.backward_ns) },
        ]}
      />
    </Part>
  )
}

export function Memory({ report }: { report: Report }) {
  if (!report.memory.length) return null
  const columns: Column<MemoryRow>[] = [
    {
      key: "who",
      title: "",
      text: true,
      cell: one => (one.what === "rss" || one.what === "used" ? one.who : `${one.who}, device ${one.what}`),
    },
    { key: "host", title: "host", text: true, wide: true, cell: one => one.host },
    { key: "first", title: "after warm-up", cell: one => size(one.first) },
    { key: "last", title: "last", cell: one => size(one.last) },
    { key: "peak", title: "peak", cell: one => size(one.peak) },
    { key: "limit", title: "limit", cell: one => (one.limit === null ? "" : size(one.limit)) },
  ]
  return (
    <Part title="Memory">
      <Table
        caption="Memory"
        columns={columns}
        rows={report.memory}
        keyOf={one => `${one.who}-${one.host}-${one.what}`}
      />
    </Part>
  )
}

export const NOTES_ABOVE = 3 // what was wrong with the files stands above everything; what is more, at the end

export function Foot({ report }: { report: Report }) {
  const { overhead, drops, run } = report
  const here = report.blind_spots.filter(one => one.scope === "run")
  return (
    <footer class="foot">
      <p>
        Sonde's own cost: {share(overhead.share)} of the time, {plural(overhead.records, "record")},{" "}
        {size(overhead.size)} on disk. {drops.length === 0 && "No records lost."}
      </p>
      {drops.map(one => (
        <p key={one.reason}>
          Lost: {one.count === null ? "an unknown number of records" : plural(one.count, "record")}: {one.reason}.
        </p>
      ))}
      {run.notes.slice(NOTES_ABOVE).map(note => (
        <p key={note}>{note}</p>
      ))}
      {here.length > 0 && (
        <>
          <h3>Not seen in this run</h3>
          <ul>
            {here.map(one => (
              <li key={one.what}>{one.what}</li>
            ))}
          </ul>
        </>
      )}
    </footer>
  )
}

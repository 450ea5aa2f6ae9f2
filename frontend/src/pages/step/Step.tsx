// One step: where its time went, on all ranks, threads and loader workers, and the batch it used.
import { useMemo } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import type { BatchHead, Head, StepRow, WholeStep } from "../../api/types"
import { rankPart, to } from "../../app/address"
import { type Command, useCommands } from "../../app/commands"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { brief, count, duration, MISSING, numeric, phaseName, plural, share, size, times } from "../../app/units"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Choice, Facts, PhaseBar, Swatch } from "../../parts/Small"
import { Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { phasesOf } from "../steps/phases"
import { early } from "./bars"
import { Waterfall } from "./Waterfall"
import "./step.css"

export default function Step({ params }: PageProps) {
  const run = params.run as string
  const rank = params.rank === "-" ? null : Number(params.rank)
  const step = Number(params.step)
  const of = rank === null ? "" : ` of rank ${rank}`
  return (
    <RunPage run={run} title={`Step ${count(step)}${of}`} crumbs={[{ text: "Steps", to: to.steps(run) }]}>
      {head => <Loaded head={head} rank={rank} step={step} />}
    </RunPage>
  )
}

function Loaded({ head, rank, step }: { head: Head; rank: number | null; step: number }) {
  const { process, ranks } = place.value.query
  const path = about(head.id, `/steps/${rankPart(rank)}/${step}`, { process, ranks })
  const found = useSteadyData<WholeStep>(path)
  return (
    <Show of={found} path={path} what="Reading the step">
      {data => <Whole head={head} data={data} rank={rank} />}
    </Show>
  )
}

function Whole({ head, data, rank }: { head: Head; data: WholeStep; rank: number | null }) {
  const { step } = data
  const { process } = place.value.query
  const other = (number: number) => to.step(head.id, rank, number, { process })
  const ranks = [...new Set(head.ranks.map(one => one.rank))].filter(one => one !== null && one !== rank)
  useCommands(
    useMemo<Command[]>(
      () => [
        ...(data.next === null ? [] : [{ name: "Next step", to: to.step(head.id, rank, data.next) }]),
        ...(data.previous === null ? [] : [{ name: "Previous step", to: to.step(head.id, rank, data.previous) }]),
        ...data.batches.slice(0, 1).map(one => ({ name: "Batch of this step", to: to.batch(head.id, one) })),
      ],
      [head.id, rank, data],
    ),
  )
  return (
    <>
      <div class="head">
        <h1>Step {count(step.step)}</h1>
        {rank !== null && <span class="soft">rank {rank}</span>}
        {notes(step).map(one => (
          <span key={one} class="tag">
            {one}
          </span>
        ))}
        <nav class="between" aria-label="Other steps">
          {data.previous !== null && (
            <a class="button" href={other(data.previous)} rel="prev">
              ← step {count(data.previous)}
            </a>
          )}
          {data.next !== null && (
            <a class="button" href={other(data.next)} rel="next">
              step {count(data.next)} →
            </a>
          )}
        </nav>
      </div>
      <Facts of={facts(step)} />
      {ranks.length > 0 && (
        <p class="told">
          The same step on{" "}
          {ranks.slice(0, 16).map((one, at) => (
            <span key={one}>
              {at > 0 && ", "}
              <Go to={to.step(head.id, one ?? null, step.step)}>rank {one}</Go>
            </span>
          ))}
          {ranks.length > 16 && ` and ${ranks.length - 16} more`}.
        </p>
      )}
      <Phases step={step} />
      <Lanes head={head} data={data} />
      <Batches head={head} batches={data.batches} />
    </>
  )
}

function facts(step: StepRow): Record<string, string | null> {
  return {
    took: duration(step.dur_ns),
    "of median": step.times === null ? null : times(step.times),
    loss: step.loss === null ? null : brief(step.loss),
    samples: step.samples === null ? null : count(step.samples),
    epoch: step.epoch === null ? null : count(step.epoch),
    "into the run": duration(step.start_ns),
    "garbage collector": step.gc_ns ? duration(step.gc_ns) : null,
    "device peak": step.device_peak_bytes === null ? null : size(step.device_peak_bytes),
  }
}

function notes(step: StepRow): string[] {
  const found = [
    step.warmup && "warm-up",
    step.skipped && "skipped",
    step.loss !== null && !Number.isFinite(numeric(step.loss)) && "loss not finite",
  ]
  return found.filter(one => typeof one === "string")
}

function Phases({ step }: { step: StepRow }) {
  const phases = phasesOf(step)
  const rows = Object.entries(phases).filter((one): one is [string, number] => one[1] !== null)
  if (!rows.length) return null
  const columns: Column<[string, number]>[] = [
    {
      key: "phase",
      title: "phase",
      text: true,
      cell: ([phase]) => (
        <>
          <Swatch phase={phase} />
          {phaseName(phase)}
        </>
      ),
    },
    { key: "time", title: "time", cell: ([, ns]) => duration(ns) },
    { key: "share", title: "share", cell: ([, ns]) => share(ns / step.dur_ns) },
  ]
  return (
    <Part title="Phases">
      <div class="wholebar">
        <PhaseBar phases={phases} of={step.dur_ns} />
      </div>
      <Table narrow caption="Phases of this step" columns={columns} rows={rows} keyOf={([phase]) => phase} />
    </Part>
  )
}

function Lanes({ head, data }: { head: Head; data: WholeStep }) {
  const asked = place.value.query.show
  const squeezed = early(data.from, data.to, data.step)
  const only = asked === "step" || (asked !== "all" && squeezed)
  const from = only ? data.step.start_ns : data.from
  if (!data.lanes.length) return null
  const before = data.step.start_ns - data.from
  return (
    <Part
      title="Waterfall"
      told={
        before > 0
          ? `Loader workers began with this batch ${duration(before)} before the step. Items, batches and steps are links.`
          : "What each rank, thread and loader worker did. Items and batches are links."
      }
      more={
        before > 0 && (
          <Choice
            label="Range"
            options={[
              ["step", "The step"],
              ["all", "With loading"],
            ]}
            value={only ? "step" : "all"}
            onChoose={show => setQuery({ show }, { replace: true })}
          />
        )
      }
    >
      <FewRanks data={data} />
      <Waterfall run={head.id} data={data} from={from} to={data.to} />
      {data.left_out > 0 && <p class="soft small">{plural(data.left_out, "shorter slice")} left out.</p>}
    </Part>
  )
}

const MOST_RANKS = 64 // that the server sends

/** Of many ranks, those that took longest by themselves. */
function FewRanks({ data }: { data: WholeStep }) {
  const shown = new Set(data.phases.map(one => one.process)).size
  const more = Math.min(data.ranks, MOST_RANKS)
  if (shown >= data.ranks) return null
  return (
    <p class="told">
      This rank and those with the longest time without communication: {shown} of {plural(data.ranks, "rank")}.{" "}
      {shown < more && (
        <button type="button" class="link" onClick={() => setQuery({ ranks: more })}>
          Show {count(more)}
        </button>
      )}
    </p>
  )
}

function Batches({ head, batches }: { head: Head; batches: BatchHead[] }) {
  if (!batches.length) {
    return (
      <Part title="Batch">
        <p class="soft">No batch of a data loader was recorded for this step.</p>
      </Part>
    )
  }
  const several = head.ranks.length > 1
  const columns: Column<BatchHead>[] = [
    { key: "batch", title: "batch", text: true, cell: one => <Go to={to.batch(head.id, one)}>{batchName(one)}</Go> },
    ...(several ? [{ key: "rank", title: "rank", cell: (one: BatchHead) => one.rank ?? MISSING }] : []),
    { key: "size", title: "items", cell: one => count(one.size) },
    { key: "worker", title: "worker", cell: one => one.worker ?? "main" },
    { key: "wait", title: "wait", cell: one => duration(one.wait_ns) },
    { key: "fetch", title: "load time", cell: one => duration(one.fetch_ns) },
    { key: "purpose", title: "purpose", text: true, cell: one => one.purpose ?? MISSING },
  ]
  return (
    <Part title={batches.length > 1 ? "Batches" : "Batch"}>
      <Table
        caption="Batches of this step"
        columns={columns}
        rows={batches}
        keyOf={one => `${one.process}-${one.loader}-${one.round}-${one.batch}`}
      />
    </Part>
  )
}

export function batchName(one: { loader: number | null; round: number | null; batch: number | null }): string {
  return `batch ${one.batch ?? MISSING}, round ${one.round ?? MISSING}${one.loader ? `, loader ${one.loader}` : ""}`
}

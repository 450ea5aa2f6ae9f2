// One run: the verdict, its charts, and where its time goes. Live while the run is recorded.
import { useData } from "../../api/data"
import type { LiveState } from "../../api/live"
import type { Head, Report } from "../../api/types"
import type { PageProps } from "../../app/pages"
import { brief, count, duration, moment, plural, rate } from "../../app/units"
import { about, RunPage } from "../../parts/RunPage"
import { Copy, Facts, Kind, State } from "../../parts/Small"
import { Failure } from "../../parts/States"
import { Charts } from "./Charts"
import { Findings } from "./Findings"
import { Foot, Layers, Memory, NOTES_ABOVE, Phases, Ranks, SlowItems, SlowSteps } from "./Tables"
import "./run.css"

export default function Run({ params }: PageProps) {
  const run = params.run as string
  return (
    <RunPage run={run} title="Run">
      {(head, live) => <Overview head={head} live={live} />}
    </RunPage>
  )
}

function Overview({ head, live }: { head: Head; live: LiveState }) {
  const path = about(head.id)
  const report = useData<Report>(path)
  const view = report.data
  return (
    <>
      <Heading head={head} report={view} live={live} />
      {view ? (
        <Findings report={view} head={head} live={live} />
      ) : report.problem ? (
        <Failure problem={report.problem} path={path} />
      ) : (
        <div class="verdict pending" role="status">
          {head.verdict && (
            <h2>
              <Kind kind={head.verdict.kind} severity={head.verdict.severity} />
            </h2>
          )}
          <p class="soft">Reading the evidence …</p>
        </div>
      )}
      <Charts head={head} live={live} />
      {view && (
        <>
          <Phases report={view} />
          <Ranks report={view} run={head.id} />
          <SlowSteps report={view} run={head.id} />
          <SlowItems report={view} run={head.id} />
          <Layers report={view} run={head.id} />
          <Memory report={view} />
          <Foot report={view} />
        </>
      )}
    </>
  )
}

const NAMED_HOSTS = 4

function named(hosts: string[]): string {
  return hosts.length > NAMED_HOSTS ? plural(hosts.length, "host") : hosts.join(", ")
}

function Heading({ head, report, live }: { head: Head; report: Report | undefined; live: LiveState }) {
  const now = head.live ? live.view?.headline : undefined
  const steps = report?.steps
  const kept = head.verdict
  const ranks = new Set(head.ranks.map(one => one.rank ?? one.process)).size // each once, however often the job was started again
  const world = report?.run.world_size ?? ranks
  const shown = {
    ran: duration(now?.elapsed_ns ?? head.duration_ns),
    epoch: now && now.epoch !== null ? count(now.epoch) : null,
    batch: now?.batches ? `${count(now.batch)} of ${count(now.batches)}` : null,
    ...(now
      ? { step: count(now.step) }
      : { steps: steps ? count(steps.count + steps.warmup) : kept ? count(kept.steps) : null }),
    "median step": steps ? duration(steps.p50_ns) : kept ? duration(kept.median_step_ns) : null,
    p95: steps ? duration(steps.p95_ns) : null,
    p99: steps ? duration(steps.p99_ns) : null,
    "steps/s": now ? rate(now.steps_per_s) : steps?.per_s ? rate(steps.per_s) : null,
    "samples/s": now?.samples_per_s ? rate(now.samples_per_s) : steps?.samples_per_s ? rate(steps.samples_per_s) : null,
    "last loss": now?.loss ? brief(now.loss) : steps?.loss ? brief(steps.loss) : null,
    ranks: world > 1 ? `${count(ranks)} of ${count(world)}` : null,
  }
  return (
    <header class="runhead">
      <div class="head">
        <h1>{head.name}</h1>
        <State state={head.state} ended={head.ended} />
      </div>
      <p class="id">
        {head.id} · {moment(head.started)}
        {head.commit && ` · commit ${head.commit.slice(0, 8)}`} · {named(head.hosts)}
      </p>
      {head.command && (
        <p class="command">
          <Copy text={head.command} />
        </p>
      )}
      <Facts of={shown} />
      {report?.run.notes.slice(0, NOTES_ABOVE).map(note => (
        <p key={note} class="notice">
          {note}
        </p>
      ))}
      {live.view?.notices.map(notice => (
        <p key={notice} class="notice">
          {notice}
        </p>
      ))}
    </header>
  )
}

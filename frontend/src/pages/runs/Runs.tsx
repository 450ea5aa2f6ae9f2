// All runs of the folder.
import { useEffect, useMemo, useState } from "preact/hooks"
import { refresh, useData } from "../../api/data"
import type { RunList, RunRow } from "../../api/types"
import { to } from "../../app/address"
import { useCommands } from "../../app/commands"
import { exists } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { ago, brief, count, duration, moment, plural, rate, size } from "../../app/units"
import { Go } from "../../parts/Go"
import { Page } from "../../parts/Page"
import { Copy, Kind, State } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { filtered, type SortKey, sorted, toggled } from "./list"
import "./runs.css"

const PATH = "/api/runs"
const OFTEN = 2000 // ms between two looks while a run is recorded
const SELDOM = 10000
const EACH = 5 // ms for each run, so that thousands cost the server no more than 5 % of a core
const AT_ONCE = 200 // rows; more are drawn when one asks for them

export default function Runs() {
  const list = useData<RunList>(PATH)
  const busy = list.data?.runs.some(run => run.state === "recording") || (list.data?.pending ?? 0) > 0
  const wait = Math.max(busy ? OFTEN : SELDOM, EACH * (list.data?.runs.length ?? 0))
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && refresh(), wait)
    return () => clearInterval(timer)
  }, [wait])
  useCommands(
    useMemo(
      () => (list.data?.runs ?? []).map(run => ({ name: run.name, hint: run.id, to: to.run(run.id) })),
      [list.data],
    ),
  )
  return (
    <Page title="Runs" here="Sonde">
      <Show of={list} path={PATH} what="Reading the runs">
        {data => (data.runs.length ? <Listed data={data} /> : <NoRuns folder={data.folder} />)}
      </Show>
    </Page>
  )
}

function NoRuns({ folder }: { folder: string }) {
  return (
    <Empty title="No runs yet">
      <p>
        The folder <code>{folder}</code> has no runs. Record a training without changing it:
      </p>
      <p>
        <Copy text="sonde run train.py" />
      </p>
      <p class="soft">The run appears here as soon as it starts.</p>
    </Empty>
  )
}

function Listed({ data }: { data: RunList }) {
  const { query } = place.value
  const text = query.q ?? ""
  const by = (query.sort ?? "started") as SortKey
  const order = query.order === "asc" ? "asc" : "desc"
  const chosen = (query.select ?? "").split(",").filter(Boolean)
  const [shown, setShown] = useState(AT_ONCE)
  const runs = useMemo(() => sorted(filtered(data.runs, text), by, order), [data, text, by, order])
  const choose = (id: string) => setQuery({ select: toggled(chosen, id).join(",") || null }, { replace: true })
  return (
    <>
      <div class="head">
        <h1>Runs</h1>
        <p class="soft">
          {plural(data.runs.length, "run")} in <code>{data.folder}</code>
          {data.pending > 0 && ` · ${plural(data.pending, "verdict")} to come`}
        </p>
      </div>
      <div class="tools">
        <input
          type="search"
          aria-label="Filter runs"
          placeholder="Filter by name, verdict, end, commit, tag"
          value={text}
          onInput={event => setQuery({ q: event.currentTarget.value || null }, { replace: true })}
        />
        <Compare chosen={chosen} />
      </div>
      {runs.length ? (
        <Table
          caption="Runs"
          columns={columns(chosen, choose)}
          rows={runs.slice(0, shown)}
          keyOf={run => run.id}
          sorted={{ by, order }}
          onSort={now => setQuery({ sort: now.by, order: now.order })}
          rowClass={run => (chosen.includes(run.id) ? "chosen" : undefined)}
        />
      ) : (
        <Empty title="No runs match">
          <button type="button" onClick={() => setQuery({ q: null })}>
            Show all {plural(data.runs.length, "run")}
          </button>
        </Empty>
      )}
      {runs.length > shown && (
        <p class="more">
          <button type="button" onClick={() => setShown(shown + 5 * AT_ONCE)}>
            Show more: {count(runs.length - shown)} left
          </button>
        </p>
      )}
    </>
  )
}

function Compare({ chosen }: { chosen: string[] }) {
  const [a, b] = chosen
  if (!a) return <span class="soft small">Select two runs to compare them.</span>
  if (!b) return <span class="soft small">Select one more run to compare.</span>
  const address = to.compare(a, b)
  return exists(address) ? (
    <a class="button" href={address}>
      Compare the two
    </a>
  ) : (
    <Copy text={`sonde compare ${a} ${b}`} />
  )
}

function columns(chosen: string[], choose: (id: string) => void): Column<RunRow>[] {
  return [
    {
      key: "select",
      title: "",
      text: true,
      cell: run => (
        <input
          type="checkbox"
          aria-label={`Select ${run.name} for comparison`}
          checked={chosen.includes(run.id)}
          onChange={() => choose(run.id)}
        />
      ),
    },
    { key: "name", title: "run", text: true, sort: "asc", cell: run => <Name run={run} /> },
    {
      key: "verdict",
      title: "verdict",
      text: true,
      sort: "desc",
      cell: run => <Kind kind={run.verdict} severity={run.severity} />,
    },
    {
      key: "ended",
      title: "state",
      text: true,
      sort: "asc",
      cell: run => <State state={run.state} ended={run.ended} />,
    },
    { key: "started", title: "started", text: true, sort: "desc", cell: run => <Started run={run} /> },
    { key: "duration_ns", title: "duration", sort: "desc", cell: run => duration(run.duration_ns) },
    { key: "steps", title: "steps", sort: "desc", cell: run => count(run.steps) },
    { key: "median_step_ns", title: "median step", sort: "desc", cell: run => duration(run.median_step_ns) },
    { key: "steps_per_s", title: "steps/s", sort: "desc", cell: run => rate(run.steps_per_s) },
    { key: "last_loss", title: "last loss", sort: "asc", cell: run => brief(run.last_loss) },
    { key: "size", title: "size", sort: "desc", wide: true, cell: run => size(run.size) },
    { key: "commit", title: "commit", text: true, wide: true, cell: run => <Commit run={run} /> },
  ]
}

function Name({ run }: { run: RunRow }) {
  return (
    <div class="runname">
      <Go to={to.run(run.id)}>{run.name}</Go>
      <span class="id">{run.id}</span>
      {run.problem && <span class="problem">{run.problem}</span>}
      {run.tags.map(tag => (
        <span key={tag} class="tag">
          {tag}
        </span>
      ))}
    </div>
  )
}

function Started({ run }: { run: RunRow }) {
  return (
    <time dateTime={run.started ?? undefined} title={moment(run.started)}>
      {ago(run.started)}
    </time>
  )
}

function Commit({ run }: { run: RunRow }) {
  return run.commit ? <code title={run.commit}>{run.commit.slice(0, 8)}</code> : <span class="soft">n/a</span>
}

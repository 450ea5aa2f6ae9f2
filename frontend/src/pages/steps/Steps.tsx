// All steps of a run: sorted, filtered, page by page.
import { useState } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import { records } from "../../api/rows"
import type { Head, Rows, StepRow } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { PHASE_ORDER } from "../../app/theme"
import { brief, count, duration, MISSING, numeric, plural, times } from "../../app/units"
import { Go } from "../../parts/Go"
import { Pager } from "../../parts/Pager"
import { about, RunPage } from "../../parts/RunPage"
import { PhaseBar, PhaseKey } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { type Filter, NONE, ofQuery, read, toQuery, write } from "./filter"
import { phasesOf } from "./phases"
import "./steps.css"

const LIMIT = 100

export default function Steps({ params }: PageProps) {
  const run = params.run as string
  return (
    <RunPage run={run} title="Steps">
      {head => <Listed head={head} />}
    </RunPage>
  )
}

function Listed({ head }: { head: Head }) {
  const { query } = place.value
  const filter = ofQuery(query)
  const sorted = { by: query.sort ?? "step", order: query.order === "desc" ? "desc" : "asc" } as const
  const offset = Number(query.offset ?? 0) || 0
  const path = about(head.id, "/steps", {
    ...toQuery(filter),
    over: filter.over,
    sort: sorted.by,
    order: sorted.order,
    offset,
    limit: LIMIT,
  })
  const steps = useSteadyData<Rows>(path)
  return (
    <>
      <h1>Steps</h1>
      <FilterBox filter={filter} head={head} />
      <Show of={steps} path={path} what="Reading the steps">
        {found =>
          found.rows.length ? (
            <>
              <p class="told">
                {plural(found.total, "step")}
                {write(filter) && ` with ${write(filter)}`}. The median step takes {duration(found.median_ns)}.{" "}
                <PhaseKey phases={seen(records<StepRow>(found))} />
              </p>
              <Table
                caption="Steps"
                columns={columns(head, records<StepRow>(found))}
                rows={records<StepRow>(found)}
                keyOf={row => `${row.process}-${row.step}-${row.start_ns}`}
                sorted={sorted}
                onSort={now => setQuery({ sort: now.by, order: now.order, offset: null })}
              />
              <Pager
                offset={offset}
                limit={LIMIT}
                total={found.total}
                onMove={at => setQuery({ offset: at || null })}
              />
            </>
          ) : (
            <NoSteps head={head} filtered={write(filter) !== ""} />
          )
        }
      </Show>
    </>
  )
}

function NoSteps({ head, filtered }: { head: Head; filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No steps match">
        <button type="button" onClick={() => setQuery({ ...toQuery(NONE), offset: null })}>
          Show all steps
        </button>
      </Empty>
    )
  }
  return (
    <Empty title="No steps recorded">
      {head.live
        ? "They appear here as soon as training runs them."
        : "The program made no optimizer step, or Sonde was switched off."}
    </Empty>
  )
}

function seen(rows: StepRow[]): string[] {
  return PHASE_ORDER.filter(phase => rows.some(row => row[`${phase}_ns`]))
}

const CHIPS: [string, Partial<Filter>][] = [
  ["> 3x median", { where: ["slow"], over: 3 }],
  ["loss is nan", { where: ["nan"] }],
  ["skipped", { where: ["skipped"] }],
  ["warm-up", { where: ["warmup"] }],
]

function FilterBox({ filter, head }: { filter: Filter; head: Head }) {
  const now = write(filter)
  const [typed, setTyped] = useState<string | null>(null)
  const [wrong, setWrong] = useState<string | null>(null)
  const apply = (next: Filter) => setQuery({ ...toQuery(next), offset: null })
  const submit = (event: Event) => {
    event.preventDefault()
    const found = read(typed ?? now)
    setWrong(found.wrong)
    if (found.wrong) return
    setTyped(null)
    apply(found.filter)
  }
  const ranks = head.ranks.map(one => one.rank).filter((rank): rank is number => rank !== null)
  return (
    <form class="tools" onSubmit={submit}>
      <input
        type="search"
        aria-label="Filter steps"
        aria-invalid={wrong !== null}
        aria-describedby="filter-help"
        placeholder="> 3x median, loss is nan, rank 1, step 100 to 200"
        spellcheck={false}
        value={typed ?? now}
        onInput={event => setTyped(event.currentTarget.value)}
      />
      <button type="submit">Filter</button>
      {CHIPS.map(([text, part]) => {
        const word = (part.where as string[])[0] as string
        const chosen = filter.where.includes(word)
        const next = { ...filter, where: chosen ? filter.where.filter(one => one !== word) : [...filter.where, word] }
        return (
          <button key={text} type="button" class="chip" aria-pressed={chosen} onClick={() => apply(next)}>
            {text}
          </button>
        )
      })}
      {ranks.length > 1 && (
        <label>
          <span class="hidden">Rank</span>
          <select
            value={filter.rank ?? ""}
            onChange={event =>
              apply({ ...filter, rank: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) })
            }
          >
            <option value="">All ranks</option>
            {ranks.map(rank => (
              <option key={rank} value={rank}>
                Rank {rank}
              </option>
            ))}
          </select>
        </label>
      )}
      <p id="filter-help" class="soft small" role="status">
        {wrong &&
          `Cannot read "${wrong}". Try: > 3x median, loss is nan, skipped, warm-up, rank 1, epoch 2, step 100 to 200.`}
      </p>
    </form>
  )
}

function columns(head: Head, rows: StepRow[]): Column<StepRow>[] {
  const longest = Math.max(...rows.map(row => row.dur_ns))
  const several = head.ranks.length > 1
  const samples = rows.some(row => row.samples !== null)
  const epochs = rows.some(row => row.epoch !== null)
  const find = (row: StepRow) =>
    to.step(head.id, row.rank, row.step, several && row.rank === null ? { process: row.process } : {})
  return [
    {
      key: "step",
      title: "step",
      text: true,
      sort: "asc",
      cell: row => <Go to={find(row)}>step {count(row.step)}</Go>,
    },
    ...(several
      ? [{ key: "rank", title: "rank", sort: "asc" as const, cell: (row: StepRow) => row.rank ?? MISSING }]
      : []),
    ...(epochs
      ? [{ key: "epoch", title: "epoch", sort: "asc" as const, cell: (row: StepRow) => row.epoch ?? MISSING }]
      : []),
    {
      key: "start_ns",
      title: "at",
      about: "Since the start of the run",
      sort: "asc",
      wide: true,
      cell: row => duration(row.start_ns),
    },
    { key: "dur_ns", title: "took", sort: "desc", cell: row => duration(row.dur_ns) },
    {
      key: "times",
      title: "of median",
      sort: "desc",
      cell: row => <span class={(row.times ?? 0) > 3 ? "worst" : "soft"}>{times(row.times)}</span>,
    },
    { key: "phases", title: "phases", text: true, cell: row => <PhaseBar phases={phasesOf(row)} of={longest} /> },
    { key: "loss", title: "loss", sort: "desc", cell: row => <Loss row={row} /> },
    ...(samples
      ? [
          {
            key: "samples",
            title: "samples",
            sort: "desc" as const,
            wide: true,
            cell: (row: StepRow) => count(row.samples),
          },
        ]
      : []),
    { key: "flags", title: "", text: true, cell: row => flags(row) },
  ]
}

function Loss({ row }: { row: StepRow }) {
  const bad = row.loss !== null && !Number.isFinite(numeric(row.loss))
  return <span class={bad ? "worst" : undefined}>{brief(row.loss)}</span>
}

function flags(row: StepRow): string {
  return [row.warmup && "warm-up", row.skipped && "skipped"].filter(Boolean).join(", ")
}

// One trace: the values of a few items, stage by stage; or the path of one item; or two traces side by side.
import { useEffect, useMemo } from "preact/hooks"
import { useData, useSteadyData } from "../../api/data"
import type { Trace as Document, Head, TraceDiff, TracedCall, TraceFile } from "../../api/types"
import { to } from "../../app/address"
import { type Command, useCommands } from "../../app/commands"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { count, duration, plural } from "../../app/units"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Kind, known } from "../../parts/Small"
import { Show } from "../../parts/States"
import { Value } from "./Value"
import "./traces.css"

export default function Trace({ params }: PageProps) {
  const run = params.run as string
  const name = params.trace as string
  const { item, beside } = place.value.query
  const path = tracePath(run, name, { item, beside })
  const found = useSteadyData<Document>(path)
  return (
    <RunPage run={run} title={name} crumbs={[{ text: "Traces", to: to.traces(run) }]}>
      {head => (
        <Show of={found} path={path} what="Reading the trace">
          {data => <Whole head={head} trace={data} beside={beside} />}
        </Show>
      )}
    </RunPage>
  )
}

function tracePath(run: string, name: string, query: Record<string, string | undefined> = {}): string {
  return about(run, `/traces/${encodeURIComponent(name)}`, query)
}

function Whole({ head, trace, beside }: { head: Head; trace: Document; beside: string | undefined }) {
  const filesPath = about(head.id, "/traces")
  const files = useData<{ traces: TraceFile[] }>(filesPath)
  const others = (files.data?.traces ?? []).filter(one => one.name !== trace.name)
  useCommands(
    useMemo<Command[]>(
      () =>
        trace.items
          .slice(0, 200)
          .map(one => ({ name: `Item ${one.name} in this trace`, act: () => setQuery({ item: one.name }) })),
      [trace.items],
    ),
  )
  const calls = trace.stages.reduce((sum, one) => sum + one.calls.length + one.left_out, 0)
  return (
    <>
      <h1>{trace.item === null ? "Trace" : `Item ${trace.item}`}</h1>
      <p class="told">
        {plural(calls, "call")} in {plural(trace.stages.filter(one => one.calls.length).length, "stage")}
        {trace.item === null ? `, ${plural(trace.items.length, "item")}` : ", each with the rows of this item"}.
        Pictures of one field have one scale for all items; what is not finite is red.
      </p>
      <div class="tools">
        <label class="small">
          Item{" "}
          <select value={trace.item ?? ""} onChange={event => setQuery({ item: event.currentTarget.value || null })}>
            <option value="">All items</option>
            {trace.items.map(one => (
              <option key={one.name} value={one.name}>
                {one.name}
                {one.id !== null && one.id !== one.name ? ` (${one.id})` : ""}
              </option>
            ))}
          </select>
        </label>
        {trace.item !== null && <Go to={to.item(head.id, itemName(trace))}>Everything about item {trace.item}</Go>}
        {others.length > 0 && (
          <label class="small">
            Compare with{" "}
            <select
              value={beside ?? ""}
              onChange={event => setQuery({ beside: event.currentTarget.value || null, array: null })}
            >
              <option value="">Nothing</option>
              {others.map(one => (
                <option key={one.name} value={one.name}>
                  {one.name}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Findings trace={trace} />
      {beside ? <Two head={head} trace={trace} beside={beside} /> : <Stages head={head} trace={trace} />}
      {trace.pictures_left_out > 0 && (
        <p class="soft small">{plural(trace.pictures_left_out, "picture")} left out; click an array to see it.</p>
      )}
      {trace.notes.length > 0 && (
        <Part title="Notes">
          <ul class="small">
            {trace.notes.map(one => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </Part>
      )}
    </>
  )
}

/** The item that is shown, as the run knows it. */
function itemName(trace: Document) {
  const found = trace.items.find(one => one.name === trace.item)
  const index = typeof found?.index === "number" ? found.index : null
  return { index, id: index === null ? (found?.id ?? String(found?.index ?? trace.item)) : null }
}

function Findings({ trace }: { trace: Document }) {
  return (
    <>
      {trace.findings.map(one => (
        <article key={`${one.kind}-${one.why}`} class={`finding ${known(one.severity)}`}>
          <h2>
            <Kind kind={one.kind} severity={one.severity} />
          </h2>
          <p class="why">{one.why}</p>
          <p>{one.next}</p>
          <p class="targets">
            {one.targets.slice(0, 8).map(target => (
              <a
                key={`${target.call}-${target.words}`}
                href={`${window.location.pathname}?${new URLSearchParams({ call: String(target.call), ...(target.item === null ? {} : { item: String(target.item) }) })}`}
              >
                {target.words}
              </a>
            ))}
          </p>
        </article>
      ))}
    </>
  )
}

// ── two of them ──

function Two({ head, trace, beside }: { head: Head; trace: Document; beside: string }) {
  const item = trace.item ?? undefined
  const path = tracePath(head.id, beside, { item, beside: trace.name })
  const other = useSteadyData<Document>(path)
  const diffPath = `${tracePath(head.id, trace.name)}/diff/${encodeURIComponent(beside)}`
  const diff = useData<TraceDiff>(diffPath)
  return (
    <>
      <Show of={diff} path={diffPath} what="Comparing the traces">
        {found => <Difference diff={found} />}
      </Show>
      <div class="two">
        <section aria-label={`A: ${trace.name}`}>
          <h2 class="side">A: {trace.name}</h2>
          <Stages head={head} trace={trace} />
        </section>
        <section aria-label={`B: ${beside}`}>
          <h2 class="side">B: {beside}</h2>
          <Show of={other} path={path} what="Reading the other trace">
            {found => <Stages head={head} trace={found} />}
          </Show>
        </section>
      </div>
    </>
  )
}

function Difference({ diff }: { diff: TraceDiff }) {
  const [first] = diff.differences
  if (diff.same) return <p class="told">No difference in {plural(diff.compared, "call")}.</p>
  return (
    <section class="difference" aria-label="Differences">
      {first && (
        <>
          <p>
            <b>First difference:</b> {first.stage}, <code>{first.function}</code>, <code>{first.field}</code>
            {first.items && <span class="soft"> ({first.items})</span>}
          </p>
          <pre>{`A = ${first.a}\nB = ${first.b}`}</pre>
        </>
      )}
      <p class="soft small">
        {diff.total > 1 && `${plural(diff.total - 1, "later difference")}. `}
        {diff.only_a.length > 0 && `${plural(diff.only_a.length, "call")} only in A. `}
        {diff.only_b.length > 0 && `${plural(diff.only_b.length, "call")} only in B.`}
      </p>
    </section>
  )
}

// ── stages and calls ──

const OPEN = 3 // calls of a stage that are open at first

function Stages({ head, trace }: { head: Head; trace: Document }) {
  const wanted = place.value.query.call
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each call that is asked for
  useEffect(() => {
    if (wanted) document.getElementById(`call-${wanted}`)?.scrollIntoView({ block: "center" })
  }, [wanted, trace])
  return (
    <>
      {trace.stages.map(stage => (
        <section key={stage.name} class="tracestage" aria-label={stage.name}>
          <h2>
            {stage.name.replaceAll("_", " ")} <span class="soft">{plural(stage.calls.length, "call")}</span>
          </h2>
          {stage.calls.map((call, at) => (
            <Call
              key={call.seq}
              head={head}
              trace={trace.name}
              item={trace.item}
              call={call}
              isOpen={at < OPEN || String(call.seq) === wanted}
              depth={depthOf(call, stage.calls)}
            />
          ))}
          {stage.left_out > 0 && <p class="soft small">{plural(stage.left_out, "further call")} not shown.</p>}
        </section>
      ))}
    </>
  )
}

const DEEPEST = 4

/** In how many calls of the same stage a call ran. */
function depthOf(call: TracedCall, calls: TracedCall[]): number {
  let depth = 0
  let parent = call.parent
  while (parent !== null && depth < DEEPEST) {
    const found = calls.find(one => one.seq === parent)
    if (!found) break
    depth++
    parent = found.parent
  }
  return depth
}

interface CallProps {
  head: Head
  trace: string
  item: string | null
  call: TracedCall
  isOpen: boolean
  depth: number
}

function Call({ head, trace, item, call, isOpen, depth }: CallProps) {
  const names = call.values.filter(one => one.way === "in").map(one => one.name)
  return (
    <details
      class={call.error ? "call failed" : "call"}
      id={`call-${call.seq}`}
      open={isOpen}
      style={{ marginLeft: `${depth * 18}px` }}
    >
      <summary>
        <code>
          <b>{call.function}</b>({names.join(", ")}) → {call.result}
        </code>
        {call.items.length === 1 && item === null && (
          <span class="about">{rowName(call, call.items[0]?.position ?? 0)}</span>
        )}
        {call.error && <b class="worst">raised {call.error}</b>}
        <span class="soft took">{duration(call.duration_ns)}</span>
      </summary>
      <Where head={head} call={call} />
      {call.values.map((value, at) => (
        <div key={`${value.way}-${value.name}-${at}`} class="tracedrow">
          <span class="tracedway">{value.way}</span>
          <Value
            value={value}
            path={(array, row) =>
              about(head.id, `/traces/${encodeURIComponent(trace)}/arrays/${call.seq}/${array}`, { item, row })
            }
            rowName={row => rowName(call, row)}
          />
        </div>
      ))}
    </details>
  )
}

function rowName(call: TracedCall, row: number): string {
  const found = call.items.find(one => one.position === row)
  const name = found?.index ?? found?.id
  return name === undefined || name === null ? `row ${row}` : `item ${name}`
}

const MOST = 8 // items that are named

function Where({ head, call }: { head: Head; call: TracedCall }) {
  const words = [
    call.phase,
    call.epoch === null ? null : `epoch ${call.epoch}`,
    call.batch === null ? null : `batch ${call.batch}`,
    call.worker === null ? null : `worker ${call.worker}`,
  ].filter(Boolean)
  return (
    <p class="soft small">
      {call.step !== null && (
        <>
          <Go to={to.step(head.id, head.ranks[0]?.rank ?? null, call.step)}>step {count(call.step)}</Go>
          {words.length > 0 && ", "}
        </>
      )}
      {words.join(", ")}
      {call.items.length > 0 && " · "}
      {call.items.slice(0, MOST).map((one, at) => (
        <span key={one.position}>
          {at > 0 && ", "}
          <button
            type="button"
            class="link"
            onClick={() => setQuery({ item: String(one.index ?? one.id ?? one.position) })}
          >
            item {one.index ?? one.id ?? one.position}
          </button>
        </span>
      ))}
      {call.items_total > MOST && ` and ${call.items_total - MOST} more`}
    </p>
  )
}

// One batch: its items, how long each took to load, and what they look like where that was kept.
import { useMemo } from "preact/hooks"
import { useData } from "../../api/data"
import type { BatchItem, Head, WholeBatch } from "../../api/types"
import { to } from "../../app/address"
import { type Command, useCommands } from "../../app/commands"
import type { PageProps } from "../../app/pages"
import { place } from "../../app/router"
import { count, duration, MISSING, size } from "../../app/units"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Facts, Meter } from "../../parts/Small"
import { Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import "./batch.css"

export default function Batch({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, `/batches/${params.rank}/${params.loader}/${params.round}/${params.batch}`, {
    process: place.value.query.process,
  })
  const found = useData<WholeBatch>(path)
  const step = found.data?.step ?? null
  const rank = found.data?.batch.rank ?? null
  const crumbs = [
    { text: "Steps", to: to.steps(run) },
    ...(step === null ? [] : [{ text: `Step ${count(step)}`, to: to.step(run, rank, step) }]),
  ]
  return (
    <RunPage run={run} title={`Batch ${params.batch}`} crumbs={crumbs}>
      {head => (
        <Show of={found} path={path} what="Reading the batch">
          {data => <Whole head={head} data={data} />}
        </Show>
      )}
    </RunPage>
  )
}

function Whole({ head, data }: { head: Head; data: WholeBatch }) {
  const { batch, items } = data
  const other = (number: number) => to.batch(head.id, { ...batch, batch: number })
  const slowest = items.reduce<BatchItem | null>(
    (most, one) => ((one.dur_ns ?? -1) > (most?.dur_ns ?? -1) ? one : most),
    null,
  )
  useCommands(
    useMemo<Command[]>(
      () =>
        items
          .slice(0, 50)
          .map(one => ({ name: `Item ${one.id ?? one.index}`, hint: duration(one.dur_ns), to: to.item(head.id, one) })),
      [head.id, items],
    ),
  )
  return (
    <>
      <div class="head">
        <h1>Batch {count(batch.batch)}</h1>
        <span class="soft">
          round {batch.round ?? MISSING} of loader {batch.loader ?? MISSING}
          {batch.rank === null ? "" : `, rank ${batch.rank}`}
        </span>
        <nav class="between" aria-label="Other batches">
          {data.previous !== null && (
            <a class="button" href={other(data.previous)} rel="prev">
              ← batch {count(data.previous)}
            </a>
          )}
          {data.next !== null && (
            <a class="button" href={other(data.next)} rel="next">
              batch {count(data.next)} →
            </a>
          )}
        </nav>
      </div>
      <Facts
        of={{
          step: data.step === null ? null : <Go to={to.step(head.id, batch.rank, data.step)}>{count(data.step)}</Go>,
          items: count(items.length || batch.size),
          worker: batch.worker === null ? "main process" : String(batch.worker),
          wait: duration(batch.wait_ns),
          "load time": duration(batch.fetch_ns),
          collate: batch.collate_ns === null ? null : duration(batch.collate_ns),
          purpose: batch.purpose ?? MISSING,
        }}
      />
      {data.kept && <p class="told">{data.kept}</p>}
      <Pictures run={head.id} items={items} />
      <Items run={head.id} items={items} longest={slowest?.dur_ns ?? null} />
    </>
  )
}

function Pictures({ run, items }: { run: string; items: BatchItem[] }) {
  const shown = items.filter(one => one.thumbnail !== null)
  if (!shown.length) return null
  return (
    <Part
      title="What the items look like"
      told="As saved by the black box, all on one scale. NaN and infinity are red."
    >
      <ul class="pictures">
        {shown.map(one => (
          <li key={one.position} class={one.guilty ? "guilty" : undefined}>
            <Go to={to.item(run, one)}>
              <img src={one.thumbnail ?? ""} alt="" loading="lazy" />
              <span>
                item {one.id ?? one.index}
                {one.guilty && <b> went wrong</b>}
              </span>
            </Go>
          </li>
        ))}
      </ul>
    </Part>
  )
}

function Items({ run, items, longest }: { run: string; items: BatchItem[]; longest: number | null }) {
  if (!items.length) {
    return (
      <Part title="Items">
        <p class="soft">The items of this batch were not recorded. Sonde may not support this loader.</p>
      </Part>
    )
  }
  const sizes = items.some(one => one.bytes !== null)
  const files = items.some(one => one.file !== null)
  const columns: Column<BatchItem>[] = [
    { key: "position", title: "#", cell: one => one.position },
    { key: "item", title: "item", text: true, cell: one => <ItemName run={run} one={one} /> },
    {
      key: "meter",
      title: "",
      text: true,
      cell: one => (one.dur_ns === null ? "" : <Meter part={longest ? one.dur_ns / longest : 0} />),
    },
    { key: "took", title: "load time", cell: one => duration(one.dur_ns) },
    { key: "worker", title: "worker", cell: one => one.worker ?? "main" },
    { key: "at", title: "at", about: "Since the start of the run", wide: true, cell: one => duration(one.start_ns) },
    ...(sizes ? [{ key: "bytes", title: "size", cell: (one: BatchItem) => size(one.bytes) }] : []),
    ...(files
      ? [{ key: "file", title: "file", text: true, cell: (one: BatchItem) => <code>{one.file ?? ""}</code> }]
      : []),
    { key: "error", title: "", text: true, cell: one => (one.error ? <span class="worst">failed</span> : "") },
  ]
  return (
    <Part title="Items">
      <Table
        caption="Items of this batch"
        columns={columns}
        rows={items}
        keyOf={one => String(one.position)}
        rowClass={one => (one.guilty ? "guilty" : undefined)}
      />
    </Part>
  )
}

function ItemName({ run, one }: { run: string; one: BatchItem }) {
  if (one.index === null && one.id === null) return <span class="soft">{MISSING}</span>
  return <Go to={to.item(run, one)}>item {one.id ?? one.index}</Go>
}

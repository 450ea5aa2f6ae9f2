// One item of a dataset: every load of it, its values where they were kept, and how to have its batch again.
import { useData } from "../../api/data"
import type { Head, ItemValue, Load, WholeItem } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { brief, count, duration, MISSING, plural, size, times } from "../../app/units"
import { ArrayView } from "../../parts/ArrayView"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Copy, Facts, Meter } from "../../parts/Small"
import { Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import "./item.css"

export default function Item({ params }: PageProps) {
  const run = params.run as string
  const name = params.index as string
  const path = about(run, `/items/${name.split("/").map(encodeURIComponent).join("/")}`)
  const found = useData<WholeItem>(path)
  const shown = name.startsWith("id:") ? name.slice(3) : name
  return (
    <RunPage run={run} title={`Item ${shown}`} crumbs={[{ text: "Items", to: to.items(run) }]}>
      {head => (
        <Show of={found} path={path} what="Reading the item">
          {data => <Whole head={head} data={data} name={shown} />}
        </Show>
      )}
    </RunPage>
  )
}

function Whole({ head, data, name }: { head: Head; data: WholeItem; name: string }) {
  const { item } = data
  return (
    <>
      <div class="head">
        <h1>Item {item.id ?? name}</h1>
        {item.id !== null && item.index !== null && <span class="soft">index {item.index}</span>}
      </div>
      <Facts
        of={{
          loads: count(item.loads),
          "median load": item.median_ns === undefined ? null : duration(item.median_ns),
          "of median item": item.times === null ? null : times(item.times),
          longest: item.max_ns === undefined ? null : duration(item.max_ns),
          "all loads": item.total_ns === undefined ? null : duration(item.total_ns),
          "own loss, mean": data.loss === null ? null : brief(data.loss),
        }}
      />
      {data.replay && (
        <p class="replay">
          <span class="soft">Load its batch again:</span> <Copy text={data.replay} label="Copy" />{" "}
          <span class="soft">DATASET: the name of the dataset in that file.</span>
        </p>
      )}
      <Values run={head.id} values={data.values} has={head.has.blackbox} />
      <Loads head={head} data={data} />
      <Losses head={head} data={data} />
      <Files data={data} />
    </>
  )
}

function Values({ run, values, has }: { run: string; values: ItemValue[]; has: boolean }) {
  if (!values.length) {
    return (
      <Part title="Values">
        <p class="soft">
          {has ? "None of the saved batches contains this item. " : "No values were saved. "}
          Keep the last batches with <code>sonde run --blackbox</code>, or trace some items with{" "}
          <code>sonde.flow.trace()</code>.
        </p>
      </Part>
    )
  }
  const stages = [...new Set(values.map(one => one.stage))]
  const pictures = values.some(one => one.image !== null)
  return (
    <Part
      title="Values"
      {...(pictures
        ? { told: "Each picture is scaled to its own lowest and highest value. NaN and infinity are red." }
        : {})}
    >
      {stages.map(stage => (
        <section key={stage} aria-label={stage} class="stage">
          <h3>{stage}</h3>
          <div class="values">
            {values
              .filter(one => one.stage === stage)
              .map(one => (
                <Value key={`${one.source}-${one.field}-${one.array}`} run={run} one={one} />
              ))}
          </div>
        </section>
      ))}
    </Part>
  )
}

function Value({ run, one }: { run: string; one: ItemValue }) {
  return (
    <article class="value">
      <h4>
        <code>{one.field || "value"}</code>
        <span class="soft">
          {one.shape.length ? one.shape.join(" x ") : "one number"}
          {one.dtype && `, ${one.dtype}`}
        </span>
      </h4>
      <ArrayView
        title={`${one.field || "value"} of ${one.source}`}
        picture={one.image}
        curve={one.curve}
        numbers={one.numbers}
        path={one.array === null ? null : about(run, one.array)}
      />
      <p class="small">
        {one.low === null ? "nothing finite" : one.low !== one.high && `${brief(one.low)} to ${brief(one.high)}`}
        {one.nonfinite > 0 && <b class="worst"> {plural(one.nonfinite, "value")} NaN or infinite</b>}
      </p>
      <p class="soft small">{one.source}</p>
    </article>
  )
}

function Loads({ head, data }: { head: Head; data: WholeItem }) {
  const { loads } = data
  const timed = loads.some(one => one.dur_ns !== null)
  const longest = loads.reduce((most, one) => Math.max(most, one.dur_ns ?? 0), 0)
  const several = head.ranks.length > 1
  const loaders = new Set(loads.map(one => one.loader)).size
  const columns: Column<Load>[] = [
    {
      key: "step",
      title: "step",
      text: true,
      cell: one => (
        <Go to={one.step === null ? null : to.step(head.id, one.rank, one.step)}>
          {one.step === null ? MISSING : `step ${count(one.step)}`}
        </Go>
      ),
    },
    { key: "batch", title: "batch", text: true, cell: one => <BatchLink run={head.id} one={one} /> },
    { key: "position", title: "position", wide: true, cell: one => one.position ?? MISSING },
    ...(several ? [{ key: "rank", title: "rank", cell: (one: Load) => one.rank ?? MISSING }] : []),
    ...(loaders > 1 ? [{ key: "loader", title: "loader", cell: (one: Load) => one.loader ?? MISSING }] : []),
    { key: "worker", title: "worker", cell: one => one.worker ?? "main" },
    {
      key: "meter",
      title: "",
      text: true,
      wide: true,
      cell: one => (one.dur_ns === null ? "" : <Meter part={longest ? one.dur_ns / longest : 0} />),
    },
    { key: "took", title: "took", cell: one => duration(one.dur_ns) },
    { key: "at", title: "at", about: "Since the start of the run", cell: one => duration(one.start_ns) },
    ...(data.loads.some(one => one.step_loss !== null)
      ? [
          {
            key: "loss",
            title: "loss of the step",
            about: "Of the whole step that used its batch, not of this item",
            cell: (one: Load) => (one.step_loss === null ? MISSING : brief(one.step_loss)),
          },
        ]
      : []),
    { key: "error", title: "", text: true, cell: one => (one.error ? <span class="worst">failed</span> : "") },
  ]
  const told = [
    timed ? "" : "Loads were not timed one by one: these are the batches that held the item.",
    loaders > 1 ? `From ${loaders} loaders: with another dataset, the same index is another item.` : "",
  ].join(" ")
  return (
    <Part title="Loads" told={told.trim()}>
      <Table
        caption="Loads of this item"
        columns={columns}
        rows={loads}
        keyOf={one => `${one.process}-${one.loader}-${one.round}-${one.batch}-${one.position}-${one.start_ns}`}
      />
      {data.left_out > 0 && <p class="soft small">{plural(data.left_out, "later load")} left out.</p>}
    </Part>
  )
}

function Losses({ head, data }: { head: Head; data: WholeItem }) {
  if (!data.losses.length) return null
  return (
    <Part title="Values the program recorded for it" told="By sonde.log_items.">
      <Table
        caption="Values recorded for this item"
        rows={data.losses}
        keyOf={one => `${one.name}-${one.rank}-${one.loader}-${one.round}-${one.batch}-${one.position}`}
        columns={[
          { key: "name", title: "name", text: true, cell: one => one.name },
          { key: "value", title: "value", cell: one => (one.value === null ? MISSING : brief(one.value)) },
          {
            key: "step",
            title: "step",
            text: true,
            cell: one => (
              <Go to={one.step === null ? null : to.step(head.id, one.rank, one.step)}>
                {one.step === null ? MISSING : `step ${count(one.step)}`}
              </Go>
            ),
          },
          { key: "purpose", title: "in", text: true, cell: one => one.purpose ?? MISSING },
        ]}
      />
    </Part>
  )
}

function BatchLink({ run, one }: { run: string; one: Load }) {
  if (one.batch === null || one.loader === null || one.round === null) return <span class="soft">{MISSING}</span>
  return (
    <Go to={to.batch(run, one)}>
      batch {count(one.batch)}, round {one.round}
    </Go>
  )
}

function Files({ data }: { data: WholeItem }) {
  if (!data.files.length) return null
  return (
    <Part title="Files">
      <Table
        caption="Files read for this item"
        rows={data.files}
        keyOf={one => one.path}
        columns={[
          { key: "path", title: "file", text: true, cell: one => <code>{one.path}</code> },
          { key: "bytes", title: "read", cell: one => size(one.bytes) },
          { key: "calls", title: "calls", cell: one => count(one.calls) },
          { key: "time", title: "time", cell: one => duration(one.dur_ns) },
        ]}
      />
    </Part>
  )
}

// What the black box kept: the first NaN with its path, or the exception; the last batches with their items; open spans, threads.
import type { ComponentChildren } from "preact"
import { useData } from "../../api/data"
import type { Birth, BlackBox as Box, BoxBatch, Case, CaseValue, Head } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place } from "../../app/router"
import { brief, count, duration, MISSING, numeric, plural } from "../../app/units"
import { ArrayView } from "../../parts/ArrayView"
import { Go } from "../../parts/Go"
import { Linked } from "../../parts/Linked"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Copy, Facts } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { Table } from "../../parts/Table"
import "./blackbox.css"

export default function BlackBox({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, "/blackbox", { dump: place.value.query.dump })
  const found = useData<Box>(path)
  return (
    <RunPage run={run} title="Black box">
      {head => (
        <Show of={found} path={path} what="Reading the black box">
          {data => <Whole head={head} data={data} />}
        </Show>
      )}
    </RunPage>
  )
}

function Whole({ head, data }: { head: Head; data: Box }) {
  if (data.empty) {
    return (
      <Empty title="The black box is empty">
        <p>{data.made_of}</p>
        <p>
          <Copy text="sonde run --blackbox --watch-nonfinite train.py" />
        </p>
      </Empty>
    )
  }
  const [first, ...then] = data.births
  return (
    <>
      <h1>Black box</h1>
      <p class="told">{data.made_of}</p>
      {data.headline && <h2 class="headline">{data.headline}</h2>}
      {first && (
        <Deed caps="First non-finite value">
          <FirstBirth head={head} birth={first} />
          {then.length > 0 && (
            <>
              <p class="soft">In other processes, later:</p>
              <ul>
                {then.map(one => (
                  <li key={one.sentence}>{one.sentence}</li>
                ))}
              </ul>
            </>
          )}
          {data.later > 0 && (
            <p class="soft small">
              {plural(data.later, "more loss was", "more losses were")} NaN or infinite.{" "}
              <Go to={to.steps(head.id, { where: "nan" })}>Those steps</Go>
            </p>
          )}
        </Deed>
      )}
      {data.raised && <Raised head={head} raised={data.raised} />}
      {data.batches.length > 0 && <Batches head={head} data={data} />}
      <Open data={data} />
      <Threads data={data} />
      <Dumps head={head} data={data} />
      <Rest data={data} />
    </>
  )
}

function Deed({ caps, children }: { caps: string; children: ComponentChildren }) {
  return (
    <section class="verdict critical" aria-label={caps}>
      <p class="caps">{caps}</p>
      {children}
    </section>
  )
}

// ── what went wrong ──

function FirstBirth({ head, birth }: { head: Head; birth: Birth }) {
  const one = birth.certificate
  const whose = { run: head.id, rank: birth.rank, layers: one.layer && head.has.layers ? [one.layer] : [] }
  return (
    <>
      <h2 class="sentence">
        <Linked text={birth.sentence} whose={whose} />
      </h2>
      <p class="why">{birth.amount}</p>
      <Way head={head} birth={birth} />
      <Facts
        of={{
          operation: one.op,
          code: birth.code,
          process: birth.pid === null ? null : `${birth.worker === null ? "" : `worker ${birth.worker}, `}${birth.pid}`,
          purpose: one.evaluation ? "evaluation" : null,
        }}
      />
      {one.inputs.length > 0 && (
        <Table
          caption="Inputs of the layer"
          narrow
          rows={one.inputs}
          keyOf={row => row.name}
          columns={[
            { key: "name", title: "input", text: true, cell: row => row.name },
            { key: "shape", title: "shape", text: true, cell: row => row.shape?.join(" x ") || "one number" },
            { key: "dtype", title: "dtype", text: true, cell: row => row.dtype ?? MISSING },
            { key: "min", title: "min", cell: row => brief(row.min) },
            { key: "max", title: "max", cell: row => brief(row.max) },
            { key: "mean", title: "mean", cell: row => brief(row.mean) },
          ]}
        />
      )}
      <p class="next">
        <span class="label">Next</span> <Linked text={`${birth.next}.`} whose={whose} />
      </p>
    </>
  )
}

/** From the item to where the value was seen first: each stage is a link. */
function Way({ head, birth }: { head: Head; birth: Birth }) {
  const one = birth.certificate
  const items = one.items.slice(0, 3)
  const more = one.items_total - items.length
  return (
    <ol class="valuepath" aria-label="Path of the value">
      {items.length > 0 && (
        <li>
          {items.map((item, at) => (
            <span key={`${item.position}-${item.index}`}>
              {at > 0 && ", "}
              <Go to={item.index === null && item.id === null ? null : to.item(head.id, item)}>
                item {item.index ?? item.id ?? `at ${item.position}`}
              </Go>
            </span>
          ))}
          {more > 0 && ` and ${more} more`}
        </li>
      )}
      {one.step !== null && (
        <li>
          <Go to={to.step(head.id, birth.rank, one.step)}>step {count(one.step)}</Go>
          {one.epoch !== null && `, epoch ${one.epoch}`}
        </li>
      )}
      {one.layer !== null && (
        <li>
          <Go to={head.has.layers ? to.layer(head.id, one.layer) : null}>layer {one.layer || "(the model)"}</Go>
          {one.type && ` ${one.type}`}
        </li>
      )}
      <li class="here">
        {one.where === "data" ? "in the data" : one.producer ? `produced in ${one.where}` : one.where}
      </li>
    </ol>
  )
}

function Raised({ head, raised }: { head: Head; raised: NonNullable<Box["raised"]> }) {
  const whose = { run: head.id, rank: null, layers: [] }
  return (
    <Deed caps="Exception">
      <h2 class="sentence">
        {raised.type}: {raised.message}
      </h2>
      <p class="why">
        {raised.who}
        {raised.step !== null && (
          <>
            , <Go to={to.step(head.id, head.ranks[0]?.rank ?? null, raised.step)}>step {count(raised.step)}</Go>
          </>
        )}
        {raised.item && (
          <>
            , <Go to={raised.index === null && raised.id === null ? null : to.item(head.id, raised)}>{raised.item}</Go>
          </>
        )}
      </p>
      {raised.frames.length > 0 && <pre>{raised.frames.join("\n")}</pre>}
      <p class="next">
        <span class="label">Next</span> <Linked text={raised.next} whose={whose} />
      </p>
    </Deed>
  )
}

// ── the last batches ──

function Batches({ head, data }: { head: Head; data: Box }) {
  const newest = [...data.batches].reverse()
  return (
    <Part
      title="Last batches"
      told="Newest first, affected items first. All items of a batch share one scale; non-finite values are red."
    >
      {newest.map((batch, at) => (
        <Batch key={`${batch.loader}-${batch.batch}-${batch.step}`} head={head} batch={batch} case={data.cases[at]} />
      ))}
    </Part>
  )
}

function Batch(props: { head: Head; batch: BoxBatch; case: Case | undefined }) {
  const { head, batch, case: found } = props
  const items = found?.items ?? []
  const first = items.slice(0, found?.first)
  const rest = items.slice(found?.first ?? 0)
  const loss = batch.loss === null ? null : numeric(batch.loss)
  const draw = (one: Case["items"][number]) => (
    <Exhibit key={one.position} head={head} batch={batch} one={one} scales={found?.scales ?? {}} />
  )
  return (
    <article class="lastbatch">
      <h3 class="sentence">
        Batch {count(batch.batch)}
        <span class="soft">
          {batch.who && `${batch.who}, `}
          {batch.step !== null && (
            <>
              <Go to={to.step(head.id, head.ranks[0]?.rank ?? null, batch.step)}>step {count(batch.step)}</Go>,{" "}
            </>
          )}
          {batch.size !== null && plural(batch.size, "item")}
          {batch.worker !== null && `, worker ${batch.worker}`}
        </span>
        {loss !== null && <span class={Number.isFinite(loss) ? "soft" : "worst"}>loss {brief(batch.loss)}</span>}
        {batch.changed && <span class="worst">changed since delivery</span>}
      </h3>
      {first.length > 0 && <div class="exhibits">{first.map(draw)}</div>}
      {rest.length > 0 && (
        <details>
          <summary>{plural(rest.length, "more item")}</summary>
          <div class="exhibits">{rest.map(draw)}</div>
        </details>
      )}
      {(found?.more ?? 0) > 0 && <p class="soft small">{plural(found?.more ?? 0, "more item")} not shown.</p>}
      {found?.notes.map(one => (
        <p key={one} class="soft small">
          {one}
        </p>
      ))}
      {batch.values.length > 0 ? (
        <Values batch={batch} />
      ) : (
        batch.kept && batch.kept !== "full" && <p class="soft small">Values: {batch.kept}.</p>
      )}
    </article>
  )
}

interface ExhibitProps {
  head: Head
  batch: BoxBatch
  one: Case["items"][number]
  scales: Case["scales"]
}

function Exhibit({ head, batch, one, scales }: ExhibitProps) {
  const name = { index: batch.indices[one.position] ?? null, id: batch.ids[one.position] ?? null }
  const known = name.index !== null || name.id !== null
  return (
    <div class={one.guilty ? "exhibit guilty" : "exhibit"}>
      <h4 class="sentence">
        <Go to={known ? to.item(head.id, name) : null}>item {one.name}</Go>
        {one.guilty && <b> went wrong</b>}
      </h4>
      {one.values.map(value => (
        <Sight key={value.path} run={head.id} item={one.name} value={value} scale={scales[value.path]} />
      ))}
    </div>
  )
}

function Sight(props: { run: string; item: string; value: CaseValue; scale: [number, number] | undefined }) {
  const { run, item, value, scale } = props
  const path = value.array === null ? null : about(run, value.array)
  return (
    <div class="sight">
      <p class="small">
        <code>{value.path}</code> <span class="soft">{value.shape.join(" x ")}</span>
        {value.nonfinite > 0 && <b class="worst"> {count(value.nonfinite)} NaN or infinite</b>}
      </p>
      <ArrayView
        title={`${value.path} of item ${item}`}
        picture={value.picture}
        curve={value.curve}
        numbers={value.numbers}
        path={path}
        {...(scale ? { scale: { low: scale[0], high: scale[1] } } : {})}
      />
    </div>
  )
}

function Values({ batch }: { batch: BoxBatch }) {
  return (
    <details>
      <summary>{plural(batch.values.length, "value")} of the whole batch</summary>
      <Table
        caption="Values of the batch"
        rows={batch.values}
        keyOf={one => one.path}
        columns={[
          { key: "path", title: "value", text: true, cell: one => <code>{one.path}</code> },
          { key: "shape", title: "shape", text: true, cell: one => one.shape?.join(" x ") ?? "" },
          { key: "dtype", title: "dtype", text: true, cell: one => one.dtype ?? "" },
          { key: "min", title: "min", cell: one => brief(one.min) },
          { key: "max", title: "max", cell: one => brief(one.max) },
          { key: "mean", title: "mean", wide: true, cell: one => brief(one.mean) },
          { key: "std", title: "std", wide: true, cell: one => brief(one.std) },
          {
            key: "nonfinite",
            title: "NaN or infinite",
            cell: one => (one.nonfinite ? <b class="worst">{count(one.nonfinite)}</b> : ""),
          },
        ]}
      />
    </details>
  )
}

// ── the rest ──

function Open({ data }: { data: Box }) {
  if (!data.open.length) return null
  return (
    <Part title="Open spans" told="Spans that had not ended.">
      <Table
        caption="Open spans"
        narrow
        rows={data.open}
        keyOf={one => `${one.who}-${one.thread}-${one.label}-${one.for_ns}`}
        columns={[
          { key: "label", title: "span", text: true, cell: one => one.label },
          { key: "for", title: "for", cell: one => duration(one.for_ns) },
          { key: "thread", title: "thread", text: true, cell: one => [one.who, one.thread].filter(Boolean).join(", ") },
        ]}
      />
    </Part>
  )
}

function Threads({ data }: { data: Box }) {
  if (!data.threads.length) return null
  const sorted = [...data.threads].sort((a, b) => Number(b.current) - Number(a.current))
  return (
    <Part title="Threads" told="Stack of each thread, innermost call first.">
      {sorted.map(one => (
        <details key={`${one.name}-${one.frames[0]}`} open={one.current}>
          <summary>
            <b>{one.name}</b> {one.current && <span class="soft">(current)</span>}{" "}
            <span class="soft small">{one.frames[0]}</span>
          </summary>
          <pre>{one.frames.join("\n")}</pre>
        </details>
      ))}
    </Part>
  )
}

function Dumps({ head, data }: { head: Head; data: Box }) {
  if (data.dumps.length < 2) return null
  return (
    <Part title="All dumps of this run">
      <Table
        caption="Dumps"
        rows={data.dumps}
        keyOf={one => one.folder}
        columns={[
          {
            key: "number",
            title: "dump",
            text: true,
            cell: one => (
              <a href={to.blackbox(head.id, { dump: one.number })} aria-current={one.shown ? "true" : undefined}>
                {one.number}
                {one.shown && " (this page)"}
              </a>
            ),
          },
          { key: "who", title: "by", text: true, cell: one => one.who },
          { key: "step", title: "step", cell: one => count(one.step) },
          { key: "batches", title: "batches", cell: one => count(one.batches) },
          { key: "why", title: "because", text: true, cell: one => <span class="long">{one.why}</span> },
        ]}
      />
    </Part>
  )
}

function Rest({ data }: { data: Box }) {
  const lists = [
    ["Left out", data.left_out],
    ["Notes", data.notes],
  ] as const
  return (
    <>
      {lists.map(
        ([title, texts]) =>
          texts.length > 0 && (
            <Part key={title} title={title}>
              <ul class="small">
                {texts.map(one => (
                  <li key={one}>{one}</li>
                ))}
              </ul>
            </Part>
          ),
      )}
    </>
  )
}

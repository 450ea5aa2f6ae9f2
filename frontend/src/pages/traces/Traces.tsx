// The traces of values that a run holds.
import { useData } from "../../api/data"
import type { Head, TraceFile } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { plural, size } from "../../app/units"
import { about, RunPage } from "../../parts/RunPage"
import { Empty, Show } from "../../parts/States"
import { Table } from "../../parts/Table"

export default function Traces({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, "/traces")
  const found = useData<{ traces: TraceFile[] }>(path)
  return (
    <RunPage run={run} title="Traces">
      {head => (
        <Show of={found} path={path} what="Looking for traces">
          {data => (data.traces.length ? <Listed head={head} traces={data.traces} /> : <NoTraces />)}
        </Show>
      )}
    </RunPage>
  )
}

function NoTraces() {
  return (
    <Empty title="No traces">
      Capture values with <code>with sonde.flow.trace(batches=1):</code> around a part of the training.
    </Empty>
  )
}

function Listed({ head, traces }: { head: Head; traces: TraceFile[] }) {
  const chosen = (place.value.query.select ?? "").split(",").filter(Boolean)
  const choose = (name: string) =>
    setQuery(
      {
        select:
          (chosen.includes(name) ? chosen.filter(one => one !== name) : [...chosen, name].slice(-2)).join(",") || null,
      },
      { replace: true },
    )
  const [a, b] = chosen
  return (
    <>
      <h1>Traces</h1>
      <p class="told">
        {plural(traces.length, "trace")}: the values that went through the program, stage by stage, from the dataset to
        the loss.
      </p>
      {traces.length > 1 && (
        <div class="tools">
          {a && b ? (
            <a class="button" href={to.trace(head.id, a, { beside: b })}>
              Show both side by side
            </a>
          ) : (
            <span class="soft small">Select two traces to see them side by side.</span>
          )}
        </div>
      )}
      <Table
        caption="Traces"
        narrow
        rows={traces}
        keyOf={one => one.name}
        columns={[
          ...(traces.length > 1
            ? [
                {
                  key: "select",
                  title: "",
                  text: true,
                  cell: (one: TraceFile) => (
                    <input
                      type="checkbox"
                      aria-label={`Select ${one.name}`}
                      checked={chosen.includes(one.name)}
                      onChange={() => choose(one.name)}
                    />
                  ),
                },
              ]
            : []),
          {
            key: "name",
            title: "trace",
            text: true,
            cell: one => (
              <a class="long" href={to.trace(head.id, one.name)}>
                {one.name}
              </a>
            ),
          },
          { key: "size", title: "size", cell: one => size(one.size) },
        ]}
      />
    </>
  )
}

// All items of the datasets, with how long they take to load.
import { useSteadyData } from "../../api/data"
import { records } from "../../api/rows"
import type { Head, Rows } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { count, duration, plural, times } from "../../app/units"
import { Go } from "../../parts/Go"
import { Pager } from "../../parts/Pager"
import { about, RunPage } from "../../parts/RunPage"
import { Meter } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"

const LIMIT = 100

interface Row {
  index: number | null
  id: string | null
  loads: number
  median_ns: number
  max_ns: number
  total_ns: number
  times: number | null
}

export default function Items({ params }: PageProps) {
  const run = params.run as string
  return (
    <RunPage run={run} title="Items">
      {head => <Listed head={head} />}
    </RunPage>
  )
}

function Listed({ head }: { head: Head }) {
  const { query } = place.value
  const sorted = { by: query.sort ?? "median_ns", order: query.order === "asc" ? "asc" : "desc" } as const
  const offset = Number(query.offset ?? 0) || 0
  const path = about(head.id, "/items", { q: query.q, sort: sorted.by, order: sorted.order, offset, limit: LIMIT })
  const items = useSteadyData<Rows>(path)
  return (
    <>
      <h1>Items</h1>
      <div class="tools">
        <input
          type="search"
          aria-label="Filter items by name"
          placeholder="Index or name contains"
          spellcheck={false}
          value={query.q ?? ""}
          onInput={event => setQuery({ q: event.currentTarget.value || null, offset: null }, { replace: true })}
        />
      </div>
      <Show of={items} path={path} what="Reading the items">
        {found => {
          const rows = records<Row>(found)
          if (!rows.length) return <NoItems filtered={Boolean(query.q)} />
          return (
            <>
              <p class="told">
                {plural(found.total, "item")}. The median load takes {duration(found.median_ns)}.
              </p>
              <Table
                caption="Items"
                columns={columns(head, rows)}
                rows={rows}
                keyOf={row => `${row.index}-${row.id}`}
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
          )
        }}
      </Show>
    </>
  )
}

function NoItems({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No items match">
        <button type="button" onClick={() => setQuery({ q: null })}>
          Show all items
        </button>
      </Empty>
    )
  }
  return (
    <Empty title="No items recorded">
      The training loaded nothing through a PyTorch data loader, or items were left out to save space.
    </Empty>
  )
}

function columns(head: Head, rows: Row[]): Column<Row>[] {
  const longest = Math.max(...rows.map(row => row.median_ns))
  return [
    {
      key: "index",
      title: "item",
      text: true,
      sort: "asc",
      cell: row => <Go to={to.item(head.id, row)}>item {row.id ?? row.index}</Go>,
    },
    { key: "meter", title: "", text: true, wide: true, cell: row => <Meter part={row.median_ns / longest} /> },
    { key: "median_ns", title: "median load", sort: "desc", cell: row => duration(row.median_ns) },
    {
      key: "times",
      title: "of median",
      cell: row => <span class={(row.times ?? 0) > 3 ? "worst" : "soft"}>{times(row.times)}</span>,
    },
    { key: "max_ns", title: "longest", sort: "desc", cell: row => duration(row.max_ns) },
    { key: "total_ns", title: "all loads", sort: "desc", wide: true, cell: row => duration(row.total_ns) },
    { key: "loads", title: "loads", sort: "desc", cell: row => count(row.loads) },
  ]
}

// The answer to a query: a table whose steps, items and layers are links, or a chart.
import { useMemo, useState } from "preact/hooks"
import type { Head, SqlAnswer, SqlColumn } from "../../api/types"
import { to } from "../../app/address"
import { place, setQuery } from "../../app/router"
import { lineColour, theme } from "../../app/theme"
import { brief, count, duration, plural } from "../../app/units"
import { Chart, type Trace } from "../../parts/chart/Chart"
import { STEP_TICKS } from "../../parts/chart/shape"
import { Go } from "../../parts/Go"
import { Choice, Meter } from "../../parts/Small"
import { Empty } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { csv, type Drawn, drawn, finite, isNumber, lines, unit, written } from "./answer"

const AT_ONCE = 200 // rows that are drawn

interface Props {
  answer: SqlAnswer
  head: Head
  limit: number
  busy: boolean
}

export function Answer({ answer, head, limit, busy }: Props) {
  const { query } = place.value
  const chosen = drawn(answer.columns, query.x, (query.y ?? "").split(",").filter(Boolean))
  const chart = query.view === "chart" && chosen !== null
  return (
    <section aria-label="Answer" aria-busy={busy}>
      <div class="tools">
        <span class="soft small" role="status">
          {plural(answer.rows.length, "row")} in {duration(answer.ns)}
          {answer.truncated && `; only the first ${count(limit)} are shown`}
        </span>
        {chosen && (
          <Choice
            label="View"
            options={[
              ["table", "Table"],
              ["chart", "Chart"],
            ]}
            value={chart ? "chart" : "table"}
            onChoose={view => setQuery({ view: view === "table" ? null : view })}
          />
        )}
        <Save answer={answer} />
      </div>
      {!answer.rows.length ? (
        <Empty title="No rows">The query is valid, but no rows match it.</Empty>
      ) : chart && chosen ? (
        <Picture answer={answer} chosen={chosen} />
      ) : (
        <Rows answer={answer} head={head} />
      )}
    </section>
  )
}

function Save({ answer }: { answer: SqlAnswer }) {
  const save = () => {
    const address = URL.createObjectURL(new Blob([csv(answer)], { type: "text/csv" }))
    const link = Object.assign(document.createElement("a"), { href: address, download: "answer.csv" })
    link.click()
    URL.revokeObjectURL(address)
  }
  return (
    <button type="button" class="link small" onClick={save}>
      Save as CSV
    </button>
  )
}

function Rows({ answer, head }: { answer: SqlAnswer; head: Head }) {
  const [shown, setShown] = useState(AT_ONCE)
  const columns = answer.columns.map<Column<unknown[]>>((column, at) => ({
    key: `${column.name}-${at}`,
    title: column.name,
    about: column.type,
    text: !isNumber(column),
    cell: row => <Cell head={head} answer={answer} row={row} at={at} />,
  }))
  const rows = useMemo(() => answer.rows.map((row, at) => ({ row, at })), [answer])
  const placed = useMemo(() => new Map(rows.map(one => [one.row, String(one.at)])), [rows])
  return (
    <>
      <Table
        caption="Answer"
        columns={columns}
        rows={answer.rows.slice(0, shown)}
        keyOf={row => placed.get(row) ?? ""}
      />
      {answer.rows.length > shown && (
        <p class="more">
          <button type="button" onClick={() => setShown(shown + 5 * AT_ONCE)}>
            Show more: {count(answer.rows.length - shown)} left
          </button>
        </p>
      )}
    </>
  )
}

/** A step, a rank, an item or a layer leads to its page. */
function Cell({ head, answer, row, at }: { head: Head; answer: SqlAnswer; row: unknown[]; at: number }) {
  const column = answer.columns[at] as SqlColumn
  const value = row[at]
  const text = written(column, value)
  if (value === null || value === undefined) return <span class="soft">null</span>
  const told = isNumber(column) && text !== String(value) ? String(value) : undefined
  return (
    <span title={told} class={typeof value === "string" && text.length > 40 ? "long" : undefined}>
      <Go to={address(head, answer, row, column.name, value)}>{text}</Go>
    </span>
  )
}

function address(head: Head, answer: SqlAnswer, row: unknown[], name: string, value: unknown): string | null {
  const at = answer.columns.findIndex(one => one.name === "rank")
  const rank = at >= 0 ? row[at] : (head.ranks[0]?.rank ?? null)
  const whose = typeof rank === "number" ? rank : null
  if (name === "step" && typeof value === "number") return to.step(head.id, whose, value)
  if (name === "rank" && typeof value === "number") return to.run(head.id, { rank: value })
  if (name === "index" && typeof value === "number") return to.item(head.id, { index: value, id: null })
  if (name === "layer" && typeof value === "string" && head.has.layers) return to.layer(head.id, value)
  return null
}

function Picture({ answer, chosen }: { answer: SqlAnswer; chosen: Drawn }) {
  return (
    <>
      <div class="tools">
        <label class="small">
          Along{" "}
          <select value={chosen.x.name} onChange={event => setQuery({ x: event.currentTarget.value, y: null })}>
            {answer.columns.map(one => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        {answer.columns
          .filter(one => one !== chosen.x && isNumber(one))
          .map(one => (
            <button
              key={one.name}
              type="button"
              class="chip"
              aria-pressed={chosen.y.includes(one)}
              onClick={() => setQuery({ y: toggled(chosen, one) })}
            >
              {one.name}
            </button>
          ))}
      </div>
      {chosen.kind === "lines" ? <Lines answer={answer} chosen={chosen} /> : <Bars answer={answer} chosen={chosen} />}
    </>
  )
}

function toggled(chosen: Drawn, one: SqlColumn): string {
  if (chosen.kind === "bars") return one.name
  const names = chosen.y.map(other => other.name)
  return (names.includes(one.name) ? names.filter(name => name !== one.name) : [...names, one.name]).join(",")
}

const TICKS = [1e-9, 1e-6, 1e-3].flatMap(one => [1, 2, 5, 10, 20, 50, 100, 200, 500].map(times => one * times))

function Lines({ answer, chosen }: { answer: SqlAnswer; chosen: Drawn }) {
  const { query } = place.value
  const { x, y } = useMemo(() => lines(answer, chosen), [answer, chosen])
  const traces = useMemo<Trace[]>(
    () => chosen.y.map((one, at) => ({ name: one.name, values: y[at] ?? [], colour: lineColour(at) })),
    [chosen, y],
  )
  if (!x.length) return <Empty title="Nothing to draw">No value of {chosen.x.name} is a finite number.</Empty>
  const whole = [x[0] as number, x.at(-1) as number] as const
  const range = query.from && query.to ? ([Number(query.from), Number(query.to)] as const) : whole
  const along = unit(chosen.x) === "ns" ? duration : (value: number) => brief(value)
  const first = chosen.y[0] as SqlColumn
  return (
    <div class="sqlchart">
      <Chart
        key={`${theme.value} ${chosen.x.name} ${chosen.y.map(one => one.name).join(",")}`}
        title={`${chosen.y.map(one => one.name).join(", ")} along ${chosen.x.name}`}
        x={x}
        traces={traces}
        range={range}
        format={value => written(first, value)}
        formatX={along}
        ticks={[...TICKS, ...STEP_TICKS]}
        height={320}
        onZoom={(from, to) => setQuery({ from, to })}
      />
      {range !== whole && (
        <button type="button" onClick={() => setQuery({ from: null, to: null })}>
          Show all
        </button>
      )}
    </div>
  )
}

const MOST_BARS = 100

function Bars({ answer, chosen }: { answer: SqlAnswer; chosen: Drawn }) {
  const [y] = chosen.y
  if (!y) return null
  const [name, value] = [answer.columns.indexOf(chosen.x), answer.columns.indexOf(y)]
  const rows = answer.rows.slice(0, MOST_BARS).map((row, at) => ({ row, at }))
  const most = rows.reduce((found, one) => Math.max(found, Math.abs(finite(one.row[value]) ?? 0)), 0)
  return (
    <>
      <Table
        caption={`${y.name} by ${chosen.x.name}`}
        narrow
        rows={rows}
        keyOf={one => String(one.at)}
        columns={[
          { key: "name", title: chosen.x.name, text: true, cell: one => written(chosen.x, one.row[name]) },
          {
            key: "bar",
            title: "",
            text: true,
            cell: one => <Meter part={most ? Math.abs(finite(one.row[value]) ?? 0) / most : 0} />,
          },
          { key: "value", title: y.name, cell: one => written(y, one.row[value]) },
        ]}
      />
      {answer.rows.length > MOST_BARS && (
        <p class="soft small">{plural(answer.rows.length - MOST_BARS, "further row")} not drawn.</p>
      )}
    </>
  )
}

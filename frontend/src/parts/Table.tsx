// A table with columns that say how a row is drawn, and headings that sort.
import type { ComponentChildren } from "preact"

export interface Column<Row> {
  key: string
  title: string
  /** What a heading means, for who hovers or listens. */
  about?: string
  cell: (row: Row) => ComponentChildren
  text?: boolean // left, for words; numbers stand right
  sort?: "asc" | "desc" // how it is sorted at the first click; without it, it cannot be
  wide?: boolean // left out on a phone
}

export interface Sorted {
  by: string
  order: "asc" | "desc"
}

interface Props<Row> {
  caption: string
  columns: Column<Row>[]
  rows: Row[]
  keyOf: (row: Row) => string
  sorted?: Sorted
  onSort?: (sorted: Sorted) => void
  rowClass?: (row: Row) => string | undefined
  narrow?: boolean // for a few columns: wide gaps are hard to read across
}

export function Table<Row>({ caption, columns, rows, keyOf, sorted, onSort, rowClass, narrow }: Props<Row>) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by keyboard
    <section class={narrow ? "scroll narrow" : "scroll"} aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(one => (
              <Heading key={one.key} column={one} sorted={sorted} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <tr key={keyOf(row)} class={rowClass?.(row)}>
              {columns.map(one => (
                <td key={one.key} class={classes(one)}>
                  {one.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

function Heading<Row>(props: {
  column: Column<Row>
  sorted: Sorted | undefined
  onSort: Props<Row>["onSort"] | undefined
}) {
  const { column, sorted, onSort } = props
  const mine = sorted?.by === column.key ? sorted.order : null
  const first = column.sort
  const turn = () => {
    if (first) onSort?.({ by: column.key, order: mine ? (mine === "asc" ? "desc" : "asc") : first })
  }
  return (
    <th
      class={classes(column)}
      scope="col"
      title={column.about}
      aria-sort={mine ? (mine === "asc" ? "ascending" : "descending") : undefined}
    >
      {first && onSort ? (
        <button type="button" class="sort" onClick={turn}>
          {column.title}
          <span aria-hidden="true">{mine ? (mine === "asc" ? " ↑" : " ↓") : ""}</span>
        </button>
      ) : (
        column.title
      )}
    </th>
  )
}

function classes<Row>(column: Column<Row>): string | undefined {
  return [column.text && "text", column.wide && "wide"].filter(Boolean).join(" ") || undefined
}

// A value that a trace caught: an array with its numbers and pictures, a container with what is in it, or its text.
import type { TracedValue } from "../../api/types"
import { brief, count, plural } from "../../app/units"
import { ArrayView } from "../../parts/ArrayView"

interface Props {
  value: TracedValue
  /** Where the whole array at a place is. */
  path: (array: string, row: number | null) => string
  rowName: (row: number) => string
  isOpen?: boolean
}

export function Value({ value, path, rowName, isOpen = true }: Props) {
  const name = <code class="tracedname">{value.name}</code>
  if (value.kind === "array") {
    return (
      <div class="traced">
        {name} <Numbers value={value} />
        <Pictures value={value} path={path} rowName={rowName} />
      </div>
    )
  }
  const children = value.children ?? []
  if (!children.length) {
    return (
      <div class="traced">
        {name} <code class="tracedtext">{value.text}</code> <span class="soft small">{value.type}</span>
      </div>
    )
  }
  return (
    <details class="traced" open={isOpen}>
      <summary>
        {name}{" "}
        <span class="soft small">
          {value.type}
          {value.length !== null && ` of ${value.length}`}
        </span>
        <Bad many={value.nonfinite} />
      </summary>
      <div class="inside">
        {children.map((child, at) => (
          <Value key={child.name} value={child} path={path} rowName={rowName} isOpen={at < 2} />
        ))}
        {(value.left_out ?? 0) > 0 && (
          <p class="soft small">{plural(value.left_out ?? 0, "further part")} not shown.</p>
        )}
      </div>
    </details>
  )
}

function Bad({ many }: { many: number | null }) {
  return many ? <b class="worst small"> {count(many)} NaN or infinite</b> : null
}

function Numbers({ value }: { value: TracedValue }) {
  const known = [
    ["min", value.low],
    ["max", value.high],
    ["mean", value.mean],
    ["std", value.std],
  ] as const
  return (
    <span class="small">
      <span>
        {value.shape?.length ? value.shape.join(" x ") : "no dimensions"}, {value.dtype}
      </span>
      {value.device && value.device !== "cpu" && <span> on {value.device}</span>}
      <span class="soft">
        {known.map(([name, one]) => one !== null && one !== undefined && ` · ${name} ${brief(one)}`)}
        {value.cut && " · copy cut"}
      </span>
      <Bad many={value.nonfinite} />
    </span>
  )
}

function Pictures({ value, path, rowName }: Omit<Props, "isOpen">) {
  const pictures = value.pictures ?? []
  const scale = value.scale ? { scale: { low: value.scale[0], high: value.scale[1] } } : {}
  if (value.array === null || value.array === undefined) {
    return <span class="soft small"> (no copy was kept)</span>
  }
  const place = value.array
  if (!pictures.length) {
    const few = (value.numbers ?? []).map(one => (typeof one === "boolean" ? String(one) : brief(one)))
    return (
      <div class="thumbs">
        <ArrayView
          title={value.name}
          picture={null}
          curve={null}
          numbers={few.length ? few : [`${count((value.shape ?? []).reduce((a, b) => a * b, 1))} numbers …`]}
          path={path(place, null)}
        />
      </div>
    )
  }
  return (
    <div class="thumbs">
      {pictures.map(one => (
        <figure key={one.row}>
          <ArrayView
            title={one.row === null ? value.name : `${value.name} of ${rowName(one.row)}`}
            picture={one.picture}
            curve={null}
            numbers={[]}
            path={path(place, one.row)}
            {...scale}
          />
          {one.row !== null && <figcaption class="soft">{rowName(one.row)}</figcaption>}
        </figure>
      ))}
    </div>
  )
}

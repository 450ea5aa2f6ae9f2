// The part of a long table that is shown, and the way to the others.
import { count } from "../app/units"

export function Pager({
  offset,
  limit,
  total,
  onMove,
}: {
  offset: number
  limit: number
  total: number
  onMove: (offset: number) => void
}) {
  if (total <= limit) return null
  return (
    <nav class="pager" aria-label="Parts of the table">
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - limit))}>
        Previous
      </button>
      <span class="soft small">
        {count(offset + 1)} to {count(Math.min(offset + limit, total))} of {count(total)}
      </span>
      <button type="button" disabled={offset + limit >= total} onClick={() => onMove(offset + limit)}>
        Next
      </button>
    </nav>
  )
}

// Bars for what ran when: one row for each thread and loader worker, one group for each rank.
import type { Slice, WholeStep } from "../../api/types"
import { to as address } from "../../app/address"
import { exists } from "../../app/pages"
import { duration, plural } from "../../app/units"
import { type Bar, type Group, groups, type Lane, phaseOf, sliceName } from "./bars"

interface Props {
  run: string
  data: WholeStep
  from: number
  to: number
}

const ROW = 20 // px
const ROOM = 4 // percent of the width that a name needs

export function Waterfall({ run, data, from, to }: Props) {
  const found = groups(data.lanes, from, to)
  const start = (100 * (data.step.start_ns - from)) / Math.max(to - from, 1)
  return (
    <div class="waterfall">
      <Ruler from={from} to={to} zero={data.step.start_ns} />
      {found.map(group => (
        <Rank key={group.rank} group={group} run={run} start={start} several={found.length > 1} />
      ))}
    </div>
  )
}

/** Times since the start of the step. */
function Ruler({ from, to, zero }: { from: number; to: number; zero: number }) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map(part => ({ part, at: from + part * (to - from) - zero }))
  return (
    <div class="ruler" aria-hidden="true">
      <span class="lane-label" />
      <div class="track">
        {marks.map(one => (
          <span key={one.part} style={{ left: `${100 * one.part}%` }}>
            {one.at === 0 ? "0" : duration(one.at)}
          </span>
        ))}
      </div>
    </div>
  )
}

function Rank({ group, run, start, several }: { group: Group; run: string; start: number; several: boolean }) {
  const name = group.rank === null ? "process" : `rank ${group.rank}`
  return (
    <section aria-label={name}>
      {several && <h3>{name}</h3>}
      {group.lanes.map(lane => (
        <Row key={lane.key} lane={lane} run={run} rank={group.rank} start={start} />
      ))}
    </section>
  )
}

function Row({ lane, run, rank, start }: { lane: Lane; run: string; rank: number | null; start: number }) {
  return (
    <div class="lane">
      <span class="lane-label">{lane.label}</span>
      <ol class="track" style={{ height: `${lane.rows * ROW}px` }} aria-label={lane.label}>
        {start > 0 && <li class="start" style={{ left: `${start}%` }} aria-hidden="true" />}
        {lane.bars.map(bar => (
          <One key={`${bar.slice.process}-${bar.slice.seq}`} bar={bar} run={run} rank={rank} />
        ))}
      </ol>
    </div>
  )
}

function One({ bar, run, rank }: { bar: Bar; run: string; rank: number | null }) {
  const { slice } = bar
  const open = slice.dur_ns === null ? "not ended" : duration(slice.dur_ns)
  const name = bar.count > 1 ? plural(bar.count, sliceName({ ...slice, index: null })) : sliceName(slice)
  const told = bar.count > 1 ? name : `${name}: ${open}${slice.error ? ", failed" : ""}`
  const link = bar.count > 1 ? null : leads(slice, run, rank)
  const classes = `slice fill-${phaseOf(slice)}${slice.error ? " failed" : ""}`
  const place = { left: `${bar.left}%`, width: `${bar.width}%`, top: `${bar.row * ROW}px` }
  const label = bar.width > ROOM ? name : ""
  return (
    <li style={place}>
      {link && exists(link) ? (
        <a class={classes} href={link} title={told} aria-label={told}>
          {label}
        </a>
      ) : (
        <span class={classes} title={told}>
          {label}
        </span>
      )}
    </li>
  )
}

/** Where a slice leads: an item to its page, what is about a batch to that. */
function leads(slice: Slice, run: string, rank: number | null): string | null {
  if (slice.cat !== "probe") return null
  if (slice.name === "item") return slice.index === null ? null : address.item(run, { index: slice.index, id: null })
  if (!slice.batch) return null
  const [loader, round, batch] = slice.batch
  return address.batch(run, { rank, loader, round, batch })
}

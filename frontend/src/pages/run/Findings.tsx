// The verdict and all other findings, each with what it explains, why it is believed, and what to do.
import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { retry } from "../../api/data"
import type { LiveState } from "../../api/live"
import { ask } from "../../api/request"
import type { Finding, Head, Report } from "../../api/types"
import { to } from "../../app/address"
import { exists } from "../../app/pages"
import { useHash } from "../../app/router"
import { count, duration, MISSING, share, size } from "../../app/units"
import type { Whose } from "../../app/words"
import { Go } from "../../parts/Go"
import { Linked } from "../../parts/Linked"
import { about } from "../../parts/RunPage"
import { Kind, known } from "../../parts/Small"
import { type Fact, facts, grouped, layerName, layersOf, plain } from "./groups"

export function Findings({ report, head, live }: { report: Report; head: Head; live: LiveState }) {
  const groups = grouped(report.findings.length ? report.findings : [report.verdict])
  const [first, ...others] = groups
  const step = report.as_of_step
  useHash()
  const behind = head.live && live.step !== null && step !== null && live.step > step
  return (
    <section aria-label="Findings" class="findings">
      {first && (
        <article class={`verdict ${known(first.cause.severity)}`} id={first.cause.kind}>
          <Title one={first.cause}>
            {step !== null && (
              <span class="asof" title={behind ? `The run is at step ${live.step}` : undefined}>
                as of step {count(step)}
                {behind && <Again run={head.id} />}
              </span>
            )}
          </Title>
          <Body one={first.cause} head={head} />
          <Effects of={first.effects} head={head} />
        </article>
      )}
      {others.map(group => (
        <article key={group.cause.kind} class={`finding ${known(group.cause.severity)}`} id={group.cause.kind}>
          <Title one={group.cause} />
          <Body one={group.cause} head={head} />
          <Effects of={group.effects} head={head} />
        </article>
      ))}
      {report.black_box.command && (
        <p class="told">
          The black box kept the last batches. <Go to={to.blackbox(head.id)}>Open it</Go>, or run{" "}
          <code>{report.black_box.command}</code>.
        </p>
      )}
    </section>
  )
}

/** Diagnose a growing run now: by itself the server does so seldom, since it must not slow the training down. */
function Again({ run }: { run: string }) {
  const [asked, setAsked] = useState(false)
  const again = async () => {
    setAsked(true)
    await ask(about(run, "", { now: 1 }), null)
    retry(about(run))
    setAsked(false)
  }
  return (
    <button type="button" class="link" disabled={asked} onClick={again}>
      {asked ? "diagnosing …" : "diagnose now"}
    </button>
  )
}

function Title({ one, children }: { one: Finding; children?: ComponentChildren }) {
  return (
    <h2>
      <a class="anchor" href={`#${one.kind}`} aria-label={`Link to the finding ${one.kind}`}>
        <Kind kind={one.kind} severity={one.severity} />
      </a>
      <span class="sure">
        {one.severity}, {share(one.confidence)} sure
      </span>
      {children}
    </h2>
  )
}

function Body({ one, head }: { one: Finding; head: Head }) {
  const whose = whoseOf(one, head)
  return (
    <>
      <p class="why">
        <Linked text={one.why} whose={whose} />
      </p>
      <p class="next">
        <span class="label">Next</span> <Linked text={one.next} whose={whose} />
      </p>
      <Evidence one={one} head={head} />
    </>
  )
}

function Effects({ of, head }: { of: Finding[]; head: Head }) {
  if (!of.length) return null
  return (
    <div class="caused">
      <p class="soft">It explains</p>
      <ul>
        {of.map(one => (
          <li key={one.kind} id={one.kind}>
            <Kind kind={one.kind} severity={one.severity} /> <Linked text={one.why} whose={whoseOf(one, head)} />
            <Evidence one={one} head={head} />
          </li>
        ))}
      </ul>
    </div>
  )
}

function whoseOf(one: Finding, head: Head): Whose {
  const ranks = one.evidence.ranks
  const rank = Array.isArray(ranks) && typeof ranks[0] === "number" ? ranks[0] : (head.ranks[0]?.rank ?? null)
  return { run: head.id, rank, layers: head.has.layers ? layersOf(one) : [] }
}

function Evidence({ one, head }: { one: Finding; head: Head }) {
  const all = facts(one.evidence)
  if (!all.length) return null
  return (
    <details class="evidence">
      <summary>Evidence</summary>
      <table>
        <tbody>
          {all.map(fact => (
            <tr key={fact.name}>
              <th scope="row" class="text">
                {plain(fact.name)}
              </th>
              <td class="text long">
                <Value fact={fact} whose={whoseOf(one, head)} />
              </td>
              <td class="text">{fact.query && <Query run={head.id} query={fact.query} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  )
}

function Query({ run, query }: { run: string; query: string }) {
  const address = to.sql(run, { q: query })
  if (exists(address)) return <a href={address}>SQL</a>
  return (
    <details>
      <summary>SQL</summary>
      <pre>{query}</pre>
    </details>
  )
}

const MOST = 20

function Value({ fact, whose }: { fact: Fact; whose: Whose }) {
  const { name, value } = fact
  if (Array.isArray(value)) {
    return (
      <>
        {value.slice(0, MOST).map((one, at) => (
          <span key={JSON.stringify(one)}>
            {at > 0 && ", "}
            <One name={name} value={one} whose={whose} />
          </span>
        ))}
        {value.length > MOST && ` and ${value.length - MOST} more`}
      </>
    )
  }
  return <One name={name} value={value} whose={whose} />
}

/** One thing that a finding names: a step, a rank, an item or a layer is a link. */
function One({ name, value, whose }: { name: string; value: unknown; whose: Whose }) {
  const word = name.replace(/s$/, "")
  if (word === "step" && typeof value === "number")
    return <Go to={to.step(whose.run, whose.rank, value)}>{count(value)}</Go>
  if (word === "rank" && typeof value === "number") return <Go to={to.run(whose.run, { rank: value })}>{value}</Go>
  if (word === "layer" && typeof value === "string") {
    const layer = layerName(value)
    return <Go to={whose.layers.includes(layer) ? to.layer(whose.run, layer) : null}>{value}</Go>
  }
  if (value !== null && typeof value === "object")
    return <Several value={value as Record<string, unknown>} whose={whose} />
  return <>{measured(name, value)}</>
}

function Several({ value, whose }: { value: Record<string, unknown>; whose: Whose }) {
  const index = typeof value.index === "number" ? value.index : null
  const id = typeof value.id === "string" ? value.id : null
  const rest = Object.entries(value).filter(
    ([name, one]) => one !== null && !["index", "id", "query", "queries"].includes(name),
  )
  const text = rest.map(([name, one]) => `${plain(name)} ${measured(name, one)}`).join(", ")
  if (index === null && id === null) return <>{text}</>
  return (
    <>
      <Go to={to.item(whose.run, { index, id })}>item {id ?? index}</Go>
      {text && ` (${text})`}
    </>
  )
}

/** A value as its name says what it is. */
function measured(name: string, value: unknown): string {
  if (value === null || value === undefined) return MISSING
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value)
  if (/[ _]ns$/.test(name)) return duration(value)
  if (/[ _]bytes$/.test(name)) return size(value)
  if (name.includes("share")) return share(value)
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(6)))
}

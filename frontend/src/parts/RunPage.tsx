// The outline of every page of a run: its tabs, the way back to it, live updates, and what to say when it is gone.
import type { ComponentChildren } from "preact"
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks"
import { useData } from "../api/data"
import { type LiveState, useLive } from "../api/live"
import type { Head } from "../api/types"
import { format, match, to } from "../app/address"
import { type Command, useCommands } from "../app/commands"
import { find, PAGES } from "../app/pages"
import { place } from "../app/router"
import { type Crumb, Page } from "./Page"
import { Failure, Loading } from "./States"

interface Props {
  run: string
  title: string
  /** Between the run and this page. */
  crumbs?: Crumb[]
  children: (head: Head, live: LiveState) => ComponentChildren
}

/** The address of what the server says of a run: `about(run, "/steps", { rank: 1 })`. */
export function about(run: string, path = "", query: Record<string, string | number | null | undefined> = {}): string {
  return format(`/api/runs/${encodeURIComponent(run)}${path}`, query)
}

export function RunPage({ run, title, crumbs = [], children }: Props) {
  const head = useData<Head>(about(run, "/head"))
  const live = useLive(run, head.data?.live ?? false)
  const name = head.data?.name ?? run
  const overview = place.value.path === to.run(run)
  useRunCommands(run, head.data)
  const gone = live.over === "gone" ? { status: 410, message: "Its folder no longer exists." } : null
  const problem = gone ?? (head.problem && FINAL.has(head.problem.status) ? head.problem : null)
  return (
    <Page
      title={overview ? name : `${title} · ${name}`}
      here={overview ? name : title}
      crumbs={overview ? [] : [{ text: name, to: to.run(run) }, ...crumbs]}
      tabs={head.data && !problem ? <Tabs run={run} head={head.data} /> : null}
    >
      {problem ? (
        <Failure problem={problem} path={about(run, "/head")} />
      ) : head.data ? (
        children(head.data, live)
      ) : head.problem ? (
        <Failure problem={head.problem} path={about(run, "/head")} />
      ) : (
        <Loading what="Reading the run" />
      )}
    </Page>
  )
}

const FINAL = new Set([404, 410, 422]) // answers that do not change by asking again

function tabs(run: string, head: Head): { label: string; to: string; here: boolean }[] {
  return PAGES.flatMap(page => {
    if (!page.tab || (page.tab.needs && !head.has[page.tab.needs])) return []
    const address = page.path.replace(":run", encodeURIComponent(run))
    const path = place.value.path
    const below = page.path !== "/runs/:run" && path.startsWith(`${address}/`)
    const here = match(page.path, path) !== null || below || find(path)?.page.under === page.tab.label
    return [{ label: page.tab.label, to: address, here }]
  })
}

function Tabs({ run, head }: { run: string; head: Head }) {
  const row = useRef<HTMLElement>(null)
  const path = place.value.path
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each address; on a phone, the row is wider than the window
  useEffect(() => row.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }), [path])
  return (
    <nav class="tabs" aria-label="Pages of this run" ref={row}>
      {tabs(run, head).map(one => (
        <a key={one.to} href={one.to} aria-current={one.here ? "page" : undefined}>
          {one.label}
        </a>
      ))}
    </nav>
  )
}

function useRunCommands(run: string, head: Head | undefined): void {
  const commands = useMemo<Command[]>(
    () => (head ? tabs(run, head).map(one => ({ name: one.label, hint: head.name, to: one.to })) : []),
    [run, head],
  )
  const jump = useCallback((text: string) => (head ? jumps(run, head, text) : []), [run, head])
  useCommands(commands, jump)
}

/** `340` or `step 340`, `step 340 rank 1`, `item 8412`, `item cat.png`. */
export function jumps(run: string, head: Head, text: string): Command[] {
  const found: Command[] = []
  const step = /^(?:step\s+)?(\d+)(?:\s+(?:of\s+)?rank\s+(\d+))?$/.exec(text)
  const axis = head.axis
  if (step?.[1] && axis && Number(step[1]) >= axis.first && Number(step[1]) <= axis.last) {
    const rank = step[2] === undefined ? (head.ranks[0]?.rank ?? null) : Number(step[2])
    const of = rank === null ? "" : ` of rank ${rank}`
    found.push({ name: `Step ${step[1]}${of}`, hint: "open", to: to.step(run, rank, Number(step[1])) })
  }
  const item = /^(?:item\s+)?(\S.*)$/.exec(text)
  if (head.has.items && item?.[1] && (text.startsWith("item") || /^\d+$/.test(text))) {
    const number = /^\d+$/.test(item[1])
    const name = number ? { index: Number(item[1]), id: null } : { index: null, id: item[1] }
    if (item[1] !== "item") found.push({ name: `Item ${item[1]}`, hint: "open", to: to.item(run, name) })
  }
  return found
}

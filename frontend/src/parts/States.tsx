// What stands where the data is not: loading, nothing there, failed. Each says what to do next.
import type { ComponentChildren } from "preact"
import { useEffect, useState } from "preact/hooks"
import { type Loaded, retry } from "../api/data"
import type { Problem } from "../api/request"
import { to } from "../app/address"

const PATIENCE = 200 // ms before a page says that it loads: a flicker says nothing

export function Loading({ what = "Loading" }: { what?: string }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), PATIENCE)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div class="loading" role="status">
      {late ? `${what} …` : ""}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <div>{children}</div>
    </div>
  )
}

const TITLES: Record<number, string> = {
  0: "The server does not answer",
  401: "The server needs its token",
  404: "Not found",
  410: "This run was deleted",
  422: "This run cannot be read",
  503: "This took too long",
}

function next(status: number, path: string): ComponentChildren {
  if (status === 0) return "This page continues automatically when the server is back. Start it with `sonde ui`."
  if (status === 401) return "Open the address that `sonde ui` printed."
  if (status === 410) return <a href={to.runs()}>See the other runs</a>
  if (status === 404) return <a href={to.runs()}>See all runs</a>
  if (status === 422) return <a href={to.runs()}>See the other runs</a>
  return (
    <button type="button" onClick={() => retry(path)}>
      Try again
    </button>
  )
}

export function Failure({ problem, path }: { problem: Problem; path: string }) {
  return (
    <div class="empty failure" role="alert">
      <h2>{TITLES[problem.status] ?? "Something went wrong"}</h2>
      <p>{problem.message}</p>
      <div>{next(problem.status, path)}</div>
    </div>
  )
}

/** Draws data when it is there. What was known before stays when a later question fails. */
export function Show<T>(props: {
  of: Loaded<T>
  path: string
  what?: string
  children: (data: T) => ComponentChildren
}) {
  const { data, problem } = props.of
  const gone = problem && (problem.status === 404 || problem.status === 410 || problem.status === 422)
  if (data !== undefined && !gone) return <>{props.children(data)}</>
  if (problem) return <Failure problem={problem} path={props.path} />
  return <Loading {...(props.what ? { what: props.what } : {})} />
}

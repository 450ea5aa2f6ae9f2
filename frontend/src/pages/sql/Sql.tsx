// SQL over the tables of a run: an editor with the schema and what was asked before; the answer as a table or a chart.
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { lost, onBack } from "../../api/connection"
import { useData } from "../../api/data"
import { ask, type Problem, UNREACHABLE } from "../../api/request"
import type { Head, Schema, SqlAnswer } from "../../api/types"
import { useCommands } from "../../app/commands"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { count } from "../../app/units"
import { about, RunPage } from "../../parts/RunPage"
import { Loading } from "../../parts/States"
import { Answer } from "./Answer"
import { remember, remembered } from "./history"
import "./sql.css"

const LIMIT = 1000

export default function Sql({ params }: PageProps) {
  const run = params.run as string
  return (
    <RunPage run={run} title="SQL">
      {head => <Asked head={head} />}
    </RunPage>
  )
}

function Asked({ head }: { head: Head }) {
  const query = place.value.query.q ?? ""
  const [again, setAgain] = useState(0)
  const [stopped, setStopped] = useState(false)
  const path = query && !stopped ? about(head.id, "/sql", { q: query, limit: LIMIT }) : null
  const answer = useAnswer(path, again)
  const run = (text: string) => {
    const wanted = text.trim()
    if (!wanted) return
    remember(wanted)
    setStopped(false)
    if (wanted === query) setAgain(again + 1)
    else setQuery({ q: wanted, x: null, y: null, from: null, to: null })
  }
  return (
    <>
      <h1>SQL</h1>
      <div class="sqlpage">
        <div class="asking">
          <Editor query={query} busy={answer.busy} onRun={run} onStop={() => setStopped(true)} />
          {answer.problem ? (
            <div class="sqlproblem" role="alert">
              <h2>{answer.problem.status === 400 ? "The query has an error" : "No answer"}</h2>
              <pre>{answer.problem.message}</pre>
            </div>
          ) : answer.data ? (
            <Answer answer={answer.data} head={head} limit={LIMIT} busy={answer.busy} />
          ) : answer.busy ? (
            <Loading what="Asking" />
          ) : (
            <p class="soft">
              {stopped
                ? "Stopped."
                : "Write one SELECT over the tables of this run, or choose a query. Each number of a finding has one."}
            </p>
          )}
        </div>
        <Beside run={head.id} onChoose={run} />
      </div>
    </>
  )
}

interface Asking {
  data: SqlAnswer | undefined
  problem: Problem | null
  busy: boolean
}

/** The answer to a question, asked once: of a run that grows it is not asked again by itself. */
function useAnswer(path: string | null, again: number): Asking {
  const [state, setState] = useState<Asking>({ data: undefined, problem: null, busy: false })
  const [back, setBack] = useState(0)
  const away = state.problem?.status === UNREACHABLE
  useEffect(() => (away ? onBack(() => setBack(times => times + 1)) : undefined), [away])
  // biome-ignore lint/correctness/useExhaustiveDependencies: `again` and `back` ask once more
  useEffect(() => {
    if (path === null) {
      setState({ data: undefined, problem: null, busy: false })
      return
    }
    const stop = new AbortController()
    setState(before => ({ ...before, problem: null, busy: true }))
    void ask(path, null, stop.signal).then(answer => {
      if (answer.kind === "failed") {
        if (answer.problem.status === UNREACHABLE) void lost()
        setState({ data: undefined, problem: answer.problem, busy: false })
      } else if (answer.kind === "fresh") setState({ data: answer.data as SqlAnswer, problem: null, busy: false })
    })
    return () => stop.abort() // the server stops computing
  }, [path, again, back])
  return state
}

interface EditorProps {
  query: string
  busy: boolean
  onRun: (text: string) => void
  onStop: () => void
}

function Editor({ query, busy, onRun, onStop }: EditorProps) {
  const [text, setText] = useState(query)
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => setText(query), [query])
  useEffect(() => {
    const insert = (event: Event) => {
      const box = area.current
      if (!box) return
      box.focus()
      box.setRangeText((event as CustomEvent<string>).detail, box.selectionStart, box.selectionEnd, "end")
      setText(box.value)
    }
    window.addEventListener(INSERT, insert)
    return () => window.removeEventListener(INSERT, insert)
  }, [])
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      onRun(text)
    }
  }
  return (
    <form
      class="editor"
      onSubmit={event => {
        event.preventDefault()
        onRun(text)
      }}
    >
      <textarea
        ref={area}
        aria-label="Query"
        aria-keyshortcuts="Control+Enter"
        spellcheck={false}
        autocomplete="off"
        placeholder="SELECT step, dur_ns, loss FROM steps ORDER BY dur_ns DESC LIMIT 20"
        rows={Math.min(16, Math.max(5, text.split("\n").length + 1))}
        value={text}
        onInput={event => setText(event.currentTarget.value)}
        onKeyDown={pressed}
      />
      <div class="tools">
        <button type="submit" disabled={!text.trim()}>
          Run <kbd>Ctrl Enter</kbd>
        </button>
        {busy && (
          <button type="button" onClick={onStop}>
            Stop
          </button>
        )}
      </div>
    </form>
  )
}

const INSERT = "sonde-insert"
const insert = (text: string) => window.dispatchEvent(new CustomEvent(INSERT, { detail: text }))

const SHORT = 120 // characters of a query in the history

function Beside({ run, onChoose }: { run: string; onChoose: (text: string) => void }) {
  const schema = useData<Schema>(about(run, "/schema"))
  const { tables = [], examples = [] } = schema.data ?? {}
  const before = remembered()
  useCommands(
    useMemo(
      () => (schema.data?.examples ?? []).map(one => ({ name: one.title, hint: "SQL", act: () => onChoose(one.sql) })),
      [schema.data, onChoose],
    ),
  )
  return (
    <aside class="schema" aria-label="Queries and tables">
      <h2>Queries</h2>
      <ul class="queries">
        {examples.map(one => (
          <li key={one.title}>
            <button type="button" class="link" title={one.sql} onClick={() => onChoose(one.sql)}>
              {one.title}
            </button>
          </li>
        ))}
      </ul>
      {before.length > 0 && (
        <details>
          <summary>History ({count(before.length)})</summary>
          <ul class="queries">
            {before.map(one => (
              <li key={one}>
                <button type="button" class="link" title={one} onClick={() => onChoose(one)}>
                  <code>{one.length > SHORT ? `${one.slice(0, SHORT)} …` : one}</code>
                </button>
              </li>
            ))}
          </ul>
        </details>
      )}
      <h2>Tables</h2>
      {tables.map(table => (
        <details key={table.name}>
          <summary>
            <code>{table.name}</code>
          </summary>
          <ul class="columns">
            {table.columns.map(column => (
              <li key={column.name}>
                <button type="button" class="link" onClick={() => insert(column.name)}>
                  <code>{column.name}</code>
                </button>
                <span class="soft">{column.type.toLowerCase()}</span>
              </li>
            ))}
          </ul>
          <button type="button" class="link small" onClick={() => onChoose(`SELECT * FROM ${table.name} LIMIT 100`)}>
            The first 100 rows
          </button>
        </details>
      ))}
    </aside>
  )
}
